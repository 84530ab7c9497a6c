-- Record the positions of partitions that had none.
-- Parameters: pipeline, and one array for each column.
-- Locks: the new rows (the pipeline row is locked before). Safe to run twice: refused (one_position_per_partition).
INSERT INTO kafka_ingest.committed_offset (
    pipeline, topic, partition, generation, topic_id, cluster_id, committed_offset, loaded_to, line, leader_epoch,
    valid_through
)
SELECT
    %(pipeline)s, topic, partition, generation, topic_id, cluster_id, committed_offset, loaded_to, line, leader_epoch,
    valid_through
FROM unnest(
    %(topic)s::text[], %(partition)s::integer[], %(generation)s::integer[], %(topic_id)s::text[],
    %(cluster_id)s::text[], %(committed_offset)s::bigint[], %(loaded_to)s::bigint[], %(line)s::integer[],
    %(leader_epoch)s::integer[], %(valid_through)s::timestamptz[]
) AS initial (
    topic, partition, generation, topic_id, cluster_id, committed_offset, loaded_to, line, leader_epoch, valid_through
);
