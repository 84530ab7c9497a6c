-- Within a line of a position each published range begins where a range before it ended, or where a position change
-- put the position. Together with the unique begins and ends (ranges_form_a_chain, ranges_end_a_chain_once) that leaves
-- neither gap nor overlap.
-- Parameters: pipeline, newest_batches (how far back to look). Locks: none. Returns the ranges without a predecessor.
WITH newest AS (
    SELECT batch_id
    FROM kafka_ingest.batch
    WHERE pipeline = %(pipeline)s AND state = 'committed'
    ORDER BY ordinal DESC
    LIMIT %(newest_batches)s
)

SELECT r.batch_id, r.topic, r.generation, r.partition, r.line, r.committed_before, r.committed_after
FROM kafka_ingest.batch_partition AS r
JOIN newest USING (batch_id)
WHERE r.published
    AND r.committed_after > r.committed_before
    AND NOT EXISTS (
        SELECT
        FROM kafka_ingest.batch_partition AS before
        WHERE before.published
            AND before.committed_after > before.committed_before
            AND before.pipeline = r.pipeline
            AND before.topic = r.topic
            AND before.generation = r.generation
            AND before.partition = r.partition
            AND before.line = r.line
            AND before.committed_after = r.committed_before
    )
    AND NOT EXISTS (
        SELECT
        FROM kafka_ingest.position_change AS change
        WHERE change.pipeline = r.pipeline
            AND change.topic = r.topic
            AND change.partition = r.partition
            AND change.to_generation = r.generation
            AND change.to_line = r.line
            AND change.to_offset = r.committed_before
    )
ORDER BY r.topic, r.partition, r.committed_before;
