-- Read what the newest plans of a pipeline saw of its logs.
-- Parameters: pipeline. Locks: none. Safe to run twice: reads only.
SELECT
    topic, partition, topic_id, seen_at, log_start_offset, end_offset, high_watermark, rate_from_at, rate_from_offset,
    next_rate_from_at, next_rate_from_offset, pinned_since, pinned_high_watermark
FROM kafka_ingest.log_observation
WHERE pipeline = %(pipeline)s
ORDER BY topic, partition;
