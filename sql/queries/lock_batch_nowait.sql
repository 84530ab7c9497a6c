-- Lock a batch for publishing and read its state and claim; fail at once (55P03) while another session has it locked.
-- Parameters: batch_id. Locks: the batch row. Safe to run twice: changes nothing.
SELECT state, claim
FROM kafka_ingest.batch
WHERE batch_id = %(batch_id)s::uuid
FOR UPDATE NOWAIT;
