-- Purpose: create a table of the session that takes a chunk like the staging table, but without its constraints, to
--   find the rows that violate them. LIKE keeps NOT NULL: allow_chunk_nulls drops it.
-- Identifiers: rows (the staging table).
-- Locks: ACCESS SHARE on the staging table. Once a transaction: the table is dropped at its end.
CREATE TEMPORARY TABLE kafka_ingest_chunk (
    LIKE {rows} INCLUDING DEFAULTS INCLUDING GENERATED
) ON COMMIT DROP
