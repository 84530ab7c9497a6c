-- Lock committed batches in the order of their recording, waiting up to lock_timeout.
-- Parameters: batch_ids. Locks: the batch rows (after the pipeline row). Safe to run twice: changes nothing.
SELECT batch_id
FROM kafka_ingest.batch
WHERE batch_id = ANY (%(batch_ids)s::uuid[]) AND state = 'committed'
ORDER BY ordinal
FOR UPDATE;
