-- Purpose: create the table where the tasks of one attempt put rows with values that did not travel: the columns that the
--   pipeline writes, with the target's types and collations. What a row lacks is NULL, and named in stage_missing.
-- Identifiers: partial (the staging table), target, columns.
-- Locks: ACCESS SHARE on the target. Safe to run twice: an existing table stays as it is.
CREATE UNLOGGED TABLE IF NOT EXISTS {partial} WITH (autovacuum_enabled = false) AS
SELECT
    {columns}, NULL::text[] AS stage_missing, NULL::boolean AS stage_may_be_null, 0 AS stage_task, 0::bigint AS stage_attempt
FROM {target}
WITH NO DATA
