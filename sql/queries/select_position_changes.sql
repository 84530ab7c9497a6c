-- Read what was recorded for a request to change positions.
-- Parameters: request_id, pipeline. Locks: none. Safe to run twice: reads only.
SELECT
    kind, topic, partition, who, at, why, from_offset, from_generation, from_line, from_topic_id, from_cluster_id,
    to_offset, to_generation, to_line, to_topic_id, to_cluster_id, details
FROM kafka_ingest.position_change
WHERE request_id = %(request_id)s AND pipeline = %(pipeline)s
ORDER BY topic, partition;
