-- Count the chosen dead letters by place and reason, with the topic id of the log that they were read from.
-- Parameters: none. Locks: none. Safe to run twice: reads only.
SELECT
    c.topic, c.generation, c.partition, r.topic_id, c.reason, count(*) AS records,
    min(c."offset") AS first_offset, max(c."offset") + 1 AS end_offset
FROM pg_temp.kafka_ingest_chosen AS c
LEFT JOIN kafka_ingest.batch_partition AS r USING (batch_id, topic, generation, partition)
GROUP BY c.topic, c.generation, c.partition, r.topic_id, c.reason
ORDER BY c.topic, c.generation, c.partition, r.topic_id, c.reason;
