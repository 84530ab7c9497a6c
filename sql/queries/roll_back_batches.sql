-- Make committed batches rolled back. Their ranges and counts stay as history; their requests are planned anew.
-- Parameters: batch_ids. Locks: the batch rows, locked before. Safe to run twice: the second time finds no committed
-- batch.
UPDATE kafka_ingest.batch
SET state = 'rolled_back'
WHERE batch_id = ANY (%(batch_ids)s::uuid[]) AND state = 'committed';
