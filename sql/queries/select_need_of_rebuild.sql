-- Read why the table of an upsert pipeline may miss deletes, or rows: the newest change since its last rebuild that gave
-- up offsets, or that took another table. No row: nothing says so.
-- Parameters: pipeline. Locks: none. Safe to run twice: reads only.
SELECT change.kind, change.topic, change.partition, change.at, change.details -> 'given_up' AS given_up
FROM kafka_ingest.position_change AS change
JOIN kafka_ingest.pipeline AS p USING (pipeline)
WHERE change.pipeline = %(pipeline)s
    AND p.upsert IS NOT NULL
    AND (change.details ? 'given_up' OR change.kind = 'target_changed')
    AND change.at > coalesce(
        (
            SELECT max(b.recorded_at)
            FROM kafka_ingest.batch AS b
            WHERE b.pipeline = %(pipeline)s
                AND b.state = 'committed'
                AND b.parameters::jsonb ->> 'mode' = 'rebuild'
        ),
        '-infinity'
    )
ORDER BY change.change_number DESC
LIMIT 1;
