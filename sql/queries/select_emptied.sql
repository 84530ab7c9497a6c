-- Read the spans of offsets that roll-backs have emptied since the rows were given up, newest first.
-- Parameters: pipeline, given_up_at (queries/given_up_at.sql). Locks: none. Safe to run twice: reads only.
-- newest_before: ordinal of the newest batch that was recorded before the roll-back; looked up once for all its spans.
WITH roll_back AS MATERIALIZED (
    SELECT
        c.request_id,
        (
            SELECT b.ordinal
            FROM kafka_ingest.batch AS b
            WHERE b.pipeline = %(pipeline)s AND b.recorded_at < min(c.at)
            ORDER BY b.ordinal DESC
            LIMIT 1
        ) AS newest_before
    FROM kafka_ingest.position_change AS c
    WHERE c.pipeline = %(pipeline)s
        AND c.kind = 'rolled_back'
        AND c.at > coalesce(%(given_up_at)s::timestamptz, '-infinity')
    GROUP BY c.request_id
)

SELECT
    c.topic, c.to_generation AS generation, c.partition, c.to_offset AS range_start, c.from_offset AS range_end,
    r.newest_before
FROM kafka_ingest.position_change AS c
JOIN roll_back AS r USING (request_id)
WHERE c.pipeline = %(pipeline)s AND c.kind = 'rolled_back' AND c.to_offset < c.from_offset
ORDER BY c.change_number DESC;
