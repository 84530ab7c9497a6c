-- Purpose: create the table where the tasks of one attempt put records that do not fit, with their original bytes.
-- Identifiers: dead_letters (the staging table).
-- Locks: a new object only. Safe to run twice: an existing table stays as it is.
CREATE UNLOGGED TABLE IF NOT EXISTS {dead_letters} (
    topic text NOT NULL,
    generation integer NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    record_time_ms bigint,
    record_time_type text,
    key bytea,
    value bytea,
    header_names text[],
    header_values bytea[],
    reason text NOT NULL,
    detail text NOT NULL,
    stage_task integer NOT NULL,
    stage_attempt bigint NOT NULL
) WITH (autovacuum_enabled = false)
