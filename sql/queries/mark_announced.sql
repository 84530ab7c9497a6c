-- Record who announces committed batches; the first announcer is kept.
-- Parameters: batch_ids, announced_by. Locks: the batch rows, in the order of their recording.
-- Safe to run twice: a batch that is announced stays as it is.
UPDATE kafka_ingest.batch AS b
SET announced_at = clock_timestamp(), announced_by = %(announced_by)s
FROM (
    SELECT batch_id
    FROM kafka_ingest.batch
    WHERE batch_id = ANY (%(batch_ids)s::uuid[])
    ORDER BY ordinal
    FOR NO KEY UPDATE
) AS locked
WHERE b.batch_id = locked.batch_id AND b.state = 'committed' AND b.announced_at IS NULL;
