-- Purpose: keep key and version of every removed row, and of every delete that hit none: without them an older record
--   that is read later would bring the row back.
-- Identifiers: f_key, f_key_hash; applies.
-- Parameters: pipeline, batch_id. Locks: the entries. Safe to run twice: it stores the same again.
INSERT INTO kafka_ingest.removed_key AS r (
    pipeline, key_hash, key, topic, generation, partition, "offset", order_value, batch_id
)
SELECT
    %(pipeline)s, {f_key_hash}, {f_key}, f.topic, f.generation, f.partition, f."offset", f.order_value::text,
    %(batch_id)s::uuid
FROM pg_temp.kafka_ingest_fold AS f
WHERE f.is_delete AND {applies}
ON CONFLICT (pipeline, key_hash) DO UPDATE
SET topic = excluded.topic,
    generation = excluded.generation,
    partition = excluded.partition,
    "offset" = excluded."offset",
    order_value = excluded.order_value,
    batch_id = excluded.batch_id
