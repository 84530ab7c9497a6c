-- Read some batches that have published into a table, the newest first, with their ranges.
-- Parameters: pipeline, schema, table, before (ordinal), batches (how many), given_up_at (queries/given_up_at.sql).
-- Locks: none. Safe to run twice: reads only.
WITH newest AS (
    SELECT batch_id, ordinal, recorded_at
    FROM kafka_ingest.batch
    WHERE pipeline = %(pipeline)s
        AND state IN ('committed', 'rolled_back')
        AND target_schema = %(schema)s
        AND target_table = %(table)s
        AND ordinal < %(before)s
        -- An empty plan has no ranges.
        AND rows + deletes + superseded + dead_letters + tombstones + filtered + invisible > 0
    ORDER BY ordinal DESC
    LIMIT %(batches)s
)

SELECT
    b.ordinal, b.batch_id::text AS batch_id, r.topic, r.generation, r.partition, r.range_start, r.range_end, r.rows,
    coalesce(b.recorded_at <= %(given_up_at)s::timestamptz, false) AS is_given_up
FROM newest AS b
JOIN kafka_ingest.batch_partition AS r USING (batch_id)
WHERE r.published
ORDER BY b.ordinal DESC;
