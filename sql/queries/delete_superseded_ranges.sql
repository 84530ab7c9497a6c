-- Purpose: delete the ranges of old superseded batches. They were never published: no position, chain or row depends
--   on them. The batch with its request and time stays in its own row.
-- Parameters: older_than_days (integer; by the database's clock, since the batch was recorded).
-- Locks: the ranges, which nobody changes any more. Safe to run twice: the second time there are none.
DELETE FROM kafka_ingest.batch_partition AS part
 USING kafka_ingest.batch AS batch
 WHERE batch.batch_id = part.batch_id
   AND batch.state = 'superseded'
   AND batch.recorded_at <= clock_timestamp() - make_interval(days => %(older_than_days)s)
   AND NOT part.published
