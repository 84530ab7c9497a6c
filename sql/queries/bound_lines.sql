-- Find, for each partition, the newest line of its generation in which a position was changed other than by a
-- roll-back.
-- Parameters: pipeline. Locks: none. Safe to run twice: reads only.
SELECT c.topic, c.partition, max(change.to_line) AS line
FROM kafka_ingest.committed_offset AS c
JOIN kafka_ingest.position_change AS change
    ON change.pipeline = c.pipeline
    AND change.topic = c.topic
    AND change.partition = c.partition
    AND change.to_generation = c.generation
WHERE c.pipeline = %(pipeline)s AND change.kind <> 'rolled_back'
GROUP BY c.topic, c.partition;
