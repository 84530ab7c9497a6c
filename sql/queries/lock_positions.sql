-- Lock positions in the order (topic, partition), before they are changed.
-- Parameters: pipeline, topic and partition as arrays. Locks: the position rows (after pipeline and batch).
-- Safe to run twice: changes nothing.
SELECT c.topic, c.partition
FROM kafka_ingest.committed_offset AS c
JOIN unnest(%(topic)s::text[], %(partition)s::integer[]) AS wanted (topic, partition) USING (topic, partition)
WHERE c.pipeline = %(pipeline)s
ORDER BY c.topic, c.partition
FOR NO KEY UPDATE OF c;
