-- Purpose: count what becomes of the fold's keys, by the partition of their newest change: rows and deletes that apply,
--   of keys that have a row and of others.
-- Identifiers: applies.
-- Parameters: none. Locks: none. Safe to run twice: it only reads.
SELECT
    f.topic,
    f.partition,
    count(*) FILTER (WHERE {applies} AND NOT f.is_delete AND f.row_place IS NOT NULL) AS updates,
    count(*) FILTER (WHERE {applies} AND NOT f.is_delete AND f.row_place IS NULL) AS inserts,
    count(*) FILTER (WHERE {applies} AND f.is_delete AND f.row_place IS NOT NULL) AS hits,
    count(*) FILTER (WHERE {applies} AND f.is_delete AND f.row_place IS NULL) AS misses
FROM pg_temp.kafka_ingest_fold AS f
GROUP BY f.topic, f.partition
