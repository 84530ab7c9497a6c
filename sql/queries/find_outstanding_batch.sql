-- Find the planned batch of a pipeline; there is at most one (one_outstanding_batch_per_pipeline).
-- Parameters: pipeline. Locks: none. Safe to run twice: reads only.
SELECT batch_id
FROM kafka_ingest.batch
WHERE pipeline = %(pipeline)s AND state = 'planned';
