-- Find, by partition, the lowest offset of any committed range of its generation with records at or after a time.
-- Parameters: pipeline, since_ms (milliseconds since 1970 UTC). Locks: none. Safe to run twice: reads only.
SELECT r.topic, r.partition, min(r.range_start) AS range_start
FROM kafka_ingest.batch_partition AS r
JOIN kafka_ingest.committed_offset AS c USING (pipeline, topic, partition, generation)
JOIN kafka_ingest.batch AS b ON b.batch_id = r.batch_id AND b.state = 'committed'
WHERE r.pipeline = %(pipeline)s
    AND r.published
    AND r.record_time_max >= timestamptz 'epoch' + %(since_ms)s * interval '1 millisecond'
GROUP BY r.topic, r.partition;
