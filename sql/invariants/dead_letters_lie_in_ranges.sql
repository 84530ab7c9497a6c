-- A dead letter lies in a published range of the batch that it names.
-- Parameters: pipeline, newest_batches (how far back to look). Locks: none. Returns the dead letters outside.
WITH newest AS (
    SELECT batch_id
    FROM kafka_ingest.batch
    WHERE pipeline = %(pipeline)s AND state IN ('committed', 'planned')
    ORDER BY ordinal DESC
    LIMIT %(newest_batches)s
)

SELECT d.batch_id, d.topic, d.generation, d.partition, d."offset", d.reason
FROM kafka_ingest.dead_letter AS d
JOIN newest USING (batch_id)
LEFT JOIN kafka_ingest.batch_partition AS r
    ON r.batch_id = d.batch_id
    AND r.topic = d.topic
    AND r.generation = d.generation
    AND r.partition = d.partition
    AND r.published
    AND r.range_start <= d."offset"
    AND d."offset" < r.range_end
WHERE d.pipeline = %(pipeline)s -- as the batch's (dead_letter_belongs_to_a_batch): not all dead letters are looked at
    AND r.batch_id IS NULL
ORDER BY d.topic, d.partition, d."offset";
