-- Record where partitions begin: every line of a position begins with a position change.
-- Parameters: request_id, pipeline, who, why, and one array for each column of the positions.
-- Locks: the new rows. Safe to run twice: refused (one_change_per_request_and_partition).
INSERT INTO kafka_ingest.position_change (
    request_id, kind, pipeline, topic, partition, who, why, to_offset, to_generation, to_line, to_topic_id,
    to_cluster_id
)
SELECT
    %(request_id)s, 'initialised', %(pipeline)s, topic, partition, %(who)s, %(why)s, committed_offset, generation,
    line, topic_id, cluster_id
FROM unnest(
    %(topic)s::text[], %(partition)s::integer[], %(generation)s::integer[], %(topic_id)s::text[],
    %(cluster_id)s::text[], %(committed_offset)s::bigint[], %(line)s::integer[]
) AS initial (topic, partition, generation, topic_id, cluster_id, committed_offset, line);
