-- Take the next claim of a planned batch: older attempts are fenced from now on.
-- Parameters: batch_id. Locks: the batch row, locked before. Safe to run twice: another claim, which fences the first.
UPDATE kafka_ingest.batch
SET claim = claim + 1
WHERE batch_id = %(batch_id)s::uuid AND state = 'planned'
RETURNING claim;
