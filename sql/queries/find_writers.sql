-- Find the batches that published, back to the oldest of the newest N committed ones that moved a position.
-- Parameters: pipeline, batches (how many). Locks: none. Safe to run twice: reads only.
WITH moved AS (
    SELECT b.ordinal
    FROM kafka_ingest.batch AS b
    WHERE b.pipeline = %(pipeline)s
        AND b.state = 'committed'
        AND EXISTS (
            SELECT
            FROM kafka_ingest.batch_partition AS r
            WHERE r.batch_id = b.batch_id AND r.published AND r.committed_after > r.committed_before
        )
    ORDER BY b.ordinal DESC
    LIMIT %(batches)s
)

SELECT batch_id
FROM kafka_ingest.batch
WHERE pipeline = %(pipeline)s
    AND state IN ('committed', 'rolled_back')
    AND ordinal >= (SELECT min(ordinal) FROM moved);
