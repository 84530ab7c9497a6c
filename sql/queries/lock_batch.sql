-- Lock a batch and read its state and claim. This waits up to lock_timeout for a COMMIT under way, so the answer is
-- final.
-- Parameters: batch_id. Locks: the batch row. Safe to run twice: changes nothing.
SELECT state, claim
FROM kafka_ingest.batch
WHERE batch_id = %(batch_id)s::uuid
FOR UPDATE;
