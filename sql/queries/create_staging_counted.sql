-- Make the staging table of offsets whose record is only counted: a tombstone, by the rule `count`.
-- Identifier: counted. Parameters: none. Locks: new objects only. Safe to run twice: a table that exists stays.
-- Only for batches that replace rows: a record that was a row before and is only counted now is not lost.
CREATE UNLOGGED TABLE IF NOT EXISTS {counted} (
    topic text NOT NULL,
    generation integer NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    stage_task integer NOT NULL,
    stage_attempt bigint NOT NULL
) WITH (autovacuum_enabled = false)
