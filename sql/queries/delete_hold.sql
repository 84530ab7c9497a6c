-- End the hold of a batch that is no longer planned.
-- Parameters: batch_id. Locks: the hold row (the batch row is locked before). Safe to run twice.
DELETE FROM kafka_ingest.batch_hold
WHERE batch_id = %(batch_id)s::uuid;
