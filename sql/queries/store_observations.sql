-- Store what a plan saw of the logs; this replaces what the plan before it saw.
-- Parameters: pipeline, and one array for each column.
-- Locks: the rows of these partitions (the pipeline row is locked before). Safe to run twice: sets the same values.
INSERT INTO kafka_ingest.log_observation (
    pipeline, topic, partition, topic_id, seen_at, log_start_offset, end_offset, high_watermark, rate_from_at,
    rate_from_offset, next_rate_from_at, next_rate_from_offset, pinned_since, pinned_high_watermark
)
SELECT
    %(pipeline)s, topic, partition, topic_id, seen_at, log_start_offset, end_offset, high_watermark, rate_from_at,
    rate_from_offset, next_rate_from_at, next_rate_from_offset, pinned_since, pinned_high_watermark
FROM unnest(
    %(topic)s::text[], %(partition)s::integer[], %(topic_id)s::text[], %(seen_at)s::timestamptz[],
    %(log_start_offset)s::bigint[], %(end_offset)s::bigint[], %(high_watermark)s::bigint[],
    %(rate_from_at)s::timestamptz[], %(rate_from_offset)s::bigint[], %(next_rate_from_at)s::timestamptz[],
    %(next_rate_from_offset)s::bigint[], %(pinned_since)s::timestamptz[], %(pinned_high_watermark)s::bigint[]
) AS seen (
    topic, partition, topic_id, seen_at, log_start_offset, end_offset, high_watermark, rate_from_at, rate_from_offset,
    next_rate_from_at, next_rate_from_offset, pinned_since, pinned_high_watermark
)
ON CONFLICT ON CONSTRAINT one_observation_per_partition DO UPDATE
SET (
    topic_id, seen_at, log_start_offset, end_offset, high_watermark, rate_from_at, rate_from_offset, next_rate_from_at,
    next_rate_from_offset, pinned_since, pinned_high_watermark
) = (
    excluded.topic_id, excluded.seen_at, excluded.log_start_offset, excluded.end_offset, excluded.high_watermark,
    excluded.rate_from_at, excluded.rate_from_offset, excluded.next_rate_from_at, excluded.next_rate_from_offset,
    excluded.pinned_since, excluded.pinned_high_watermark
);
