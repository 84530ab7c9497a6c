-- Purpose: find what stands for each key of the fold: its row in the target, or its entry among the removed keys.
-- Identifiers: target, its metadata columns topic, generation, partition, offset_column; t_is_n (the key columns of
--   target and fold are equal), t_order_value, order_type, n_key_hash.
-- Parameters: pipeline.
-- Locks: the rows found (FOR UPDATE), so that nobody changes or moves them before this transaction ends.
-- Safe to run twice: no; a transaction folds once. One look-up in the key's index for each key.
CREATE TEMPORARY TABLE kafka_ingest_fold ON COMMIT DROP AS
WITH standing AS MATERIALIZED (
    SELECT
        n.number, t.tableoid AS row_table, t.ctid AS row_place, t.{topic} AS topic, t.{generation} AS generation,
        t.{partition} AS partition, t.{offset_column} AS "offset", {t_order_value} AS order_value
    FROM pg_temp.kafka_ingest_newest AS n
    JOIN {target} AS t ON {t_is_n}
    FOR UPDATE OF t
),

removed AS MATERIALIZED (
    SELECT
        n.number, r.topic, r.generation, r.partition, r."offset", r.order_value::{order_type} AS order_value
    FROM pg_temp.kafka_ingest_newest AS n
    JOIN kafka_ingest.removed_key AS r ON r.pipeline = %(pipeline)s AND r.key_hash = {n_key_hash}
    WHERE EXISTS (SELECT FROM kafka_ingest.removed_key WHERE pipeline = %(pipeline)s)
)

SELECT
    n.*,
    s.row_table,
    s.row_place,
    r.number IS NOT NULL AS is_removed,
    CASE WHEN s.number IS NULL THEN r.topic ELSE s.topic END AS have_topic,
    CASE WHEN s.number IS NULL THEN r.generation ELSE s.generation END AS have_generation,
    CASE WHEN s.number IS NULL THEN r.partition ELSE s.partition END AS have_partition,
    CASE WHEN s.number IS NULL THEN r."offset" ELSE s."offset" END AS have_offset,
    CASE WHEN s.number IS NULL THEN r.order_value ELSE s.order_value END AS have_order_value,
    NULL::tid AS put_place,
    false AS put_is_partial
FROM pg_temp.kafka_ingest_newest AS n
LEFT JOIN standing AS s USING (number)
LEFT JOIN removed AS r USING (number)
