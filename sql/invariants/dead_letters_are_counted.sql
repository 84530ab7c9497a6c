-- The newest committed batch has as many dead letters in each of its ranges as it counted. Only the newest: an older
-- range may have been written again by a reload. Not in ranges of the newest where a later batch was rolled back. Of an
-- upsert pipeline others may stay in the range, of records that compaction took.
-- Parameters: pipeline. Locks: none. Returns the ranges that differ.
WITH newest AS (
    SELECT batch_id, ordinal
    FROM kafka_ingest.batch
    WHERE pipeline = %(pipeline)s AND state = 'committed'
    ORDER BY ordinal DESC
    LIMIT 1
)

SELECT
    r.batch_id, r.topic, r.generation, r.partition, r.range_start, r.range_end, r.dead_letters,
    count(d."offset") AS dead_letters_found
FROM kafka_ingest.batch_partition AS r
JOIN newest AS b USING (batch_id)
JOIN kafka_ingest.pipeline AS p ON p.pipeline = r.pipeline
LEFT JOIN kafka_ingest.dead_letter AS d
    ON d.pipeline = r.pipeline
    AND d.topic = r.topic
    AND d.generation = r.generation
    AND d.partition = r.partition
    AND d."offset" >= r.range_start
    AND d."offset" < r.range_end
    AND (
        p.upsert IS NULL
        OR d.batch_id = r.batch_id
        OR (d.resolved_at IS NOT NULL AND (d.request_id IS NULL OR d.resolution = 'discarded'))
        AND d.resolution <> 'superseded'
    )
WHERE NOT EXISTS ( -- a roll-back that took its end
    SELECT
    FROM kafka_ingest.position_change AS change
    WHERE change.kind = 'rolled_back'
        AND change.pipeline = r.pipeline
        AND change.topic = r.topic
        AND change.partition = r.partition
        AND change.to_generation = r.generation
        AND change.to_line > r.line
        AND change.to_offset < r.range_end
)
    AND NOT EXISTS ( -- a batch that is rolled back, and had replaced a part of it
        SELECT
        FROM kafka_ingest.batch AS undone
        JOIN kafka_ingest.batch_partition AS later USING (batch_id)
        WHERE undone.pipeline = r.pipeline
            AND undone.ordinal > b.ordinal
            AND undone.state = 'rolled_back'
            AND later.topic = r.topic
            AND later.generation = r.generation
            AND later.partition = r.partition
            AND later.range_start < r.range_end
            AND r.range_start < later.range_end
    )
GROUP BY r.batch_id, r.topic, r.generation, r.partition
HAVING count(d."offset") IS DISTINCT FROM r.dead_letters
ORDER BY r.topic, r.partition;
