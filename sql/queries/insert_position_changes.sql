-- Record changes of positions: who, why, from, to.
-- Parameters: request_id, kind, pipeline, who, why, and one array for each other column (details as JSON texts; topic
-- and partition are NULL for a change of the whole pipeline, from_* where there was no position).
-- Locks: the new rows. Safe to run twice: refused (one_change_per_request_and_partition).
INSERT INTO kafka_ingest.position_change (
    request_id, kind, pipeline, who, why, topic, partition, from_offset, from_generation, from_line, from_topic_id,
    from_cluster_id, to_offset, to_generation, to_line, to_topic_id, to_cluster_id, details
)
SELECT
    %(request_id)s, %(kind)s, %(pipeline)s, %(who)s, %(why)s, topic, partition, from_offset, from_generation,
    from_line, from_topic_id, from_cluster_id, to_offset, to_generation, to_line, to_topic_id, to_cluster_id, details
FROM unnest(
    %(topic)s::text[], %(partition)s::integer[], %(from_offset)s::bigint[], %(from_generation)s::integer[],
    %(from_line)s::integer[], %(from_topic_id)s::text[], %(from_cluster_id)s::text[], %(to_offset)s::bigint[],
    %(to_generation)s::integer[], %(to_line)s::integer[], %(to_topic_id)s::text[], %(to_cluster_id)s::text[],
    %(details)s::jsonb[]
) AS change (
    topic, partition, from_offset, from_generation, from_line, from_topic_id, from_cluster_id, to_offset,
    to_generation, to_line, to_topic_id, to_cluster_id, details
);
