-- Find the newest committed batch of a pipeline.
-- Parameters: pipeline. Locks: none. Safe to run twice: reads only.
SELECT batch_id
FROM kafka_ingest.batch
WHERE pipeline = %(pipeline)s AND state = 'committed'
ORDER BY ordinal DESC
LIMIT 1;
