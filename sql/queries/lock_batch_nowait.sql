-- Locks a batch for publishing and reads its standing; fails at once (55P03) while another session has it locked.
-- Parameters: batch_id. Locks: the batch row. Safe to run twice: changes nothing.
SELECT state, claim
FROM kafka_ingest.batch
WHERE batch_id = %(batch_id)s::uuid
FOR UPDATE NOWAIT;
