-- Read state and claim of a batch.
-- Parameters: batch_id. Locks: none. Safe to run twice: reads only.
SELECT state, claim
FROM kafka_ingest.batch
WHERE batch_id = %(batch_id)s::uuid;
