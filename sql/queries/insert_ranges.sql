-- Freeze the ranges of a batch.
-- Parameters: batch_id, pipeline, and one array for each column.
-- Locks: the new rows. Safe to run twice: refused (one_range_per_batch_and_partition).
INSERT INTO kafka_ingest.batch_partition (
    batch_id, pipeline, topic, generation, partition, topic_id, line, range_start, range_end, committed_before,
    committed_after, loaded_to, leader_epoch, reaches_high_watermark
)
SELECT
    %(batch_id)s::uuid, %(pipeline)s, topic, generation, partition, topic_id, line, range_start, range_end,
    committed_before, committed_after, loaded_to, leader_epoch, reaches_high_watermark
FROM unnest(
    %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(topic_id)s::text[], %(line)s::integer[],
    %(range_start)s::bigint[], %(range_end)s::bigint[], %(committed_before)s::bigint[], %(committed_after)s::bigint[],
    %(loaded_to)s::bigint[], %(leader_epoch)s::integer[], %(reaches_high_watermark)s::boolean[]
) AS planned (
    topic, generation, partition, topic_id, line, range_start, range_end, committed_before, committed_after,
    loaded_to, leader_epoch, reaches_high_watermark
);
