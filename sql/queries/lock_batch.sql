-- Locks a batch and reads its standing, waiting up to lock_timeout: a COMMIT under way is waited for, so the answer is
-- final.
-- Parameters: batch_id. Locks: the batch row. Safe to run twice: changes nothing.
SELECT state, claim
FROM kafka_ingest.batch
WHERE batch_id = %(batch_id)s::uuid
FOR UPDATE;
