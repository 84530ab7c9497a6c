-- Purpose: let a column of the chunk table be NULL.
-- Identifiers: column.
-- Locks: ACCESS EXCLUSIVE on the session's own table. Safe to run twice: dropping what is gone does nothing.
ALTER TABLE pg_temp.kafka_ingest_chunk ALTER COLUMN {column} DROP NOT NULL
