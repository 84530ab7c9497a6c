-- Purpose: create the table where the tasks of one attempt put deletes of keys: the columns of key and version, with the
--   types and collations of the target. Other constraints of the target are about rows, which deletes are not.
-- Identifiers: deletes (the staging table), target, columns.
-- Locks: ACCESS SHARE on the target. Safe to run twice: an existing table stays as it is.
CREATE UNLOGGED TABLE IF NOT EXISTS {deletes} WITH (autovacuum_enabled = false) AS
SELECT {columns}, 0 AS stage_task, 0::bigint AS stage_attempt
FROM {target}
WITH NO DATA
