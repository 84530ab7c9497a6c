-- Read the positions of a pipeline, in the order in which positions are locked everywhere.
-- Parameters: pipeline. Locks: none. Safe to run twice: reads only.
SELECT
    topic, partition, generation, topic_id, cluster_id, committed_offset, loaded_to, line, leader_epoch, valid_through,
    updated_at
FROM kafka_ingest.committed_offset
WHERE pipeline = %(pipeline)s
ORDER BY topic, partition;
