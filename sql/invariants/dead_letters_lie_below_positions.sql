-- Every dead letter lies below loaded_to of its partition.
-- Parameters: pipeline. Locks: none. Returns the dead letters above.
SELECT d.batch_id, d.topic, d.generation, d.partition, d."offset", c.loaded_to
FROM kafka_ingest.committed_offset AS c
JOIN kafka_ingest.dead_letter AS d
    ON d.pipeline = c.pipeline
    AND d.topic = c.topic
    AND d.generation = c.generation
    AND d.partition = c.partition
    AND d."offset" >= c.loaded_to
WHERE c.pipeline = %(pipeline)s
ORDER BY d.topic, d.partition, d."offset";
