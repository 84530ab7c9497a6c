-- Purpose: the pipeline of a batch, and the DAG that it belongs to.
-- Parameters: batch_id (text).
-- Locks: none. Safe to run twice: it only reads.
SELECT b.pipeline, latest.dag_id
  FROM kafka_ingest.batch AS b
 CROSS JOIN LATERAL (
       SELECT n.dag_id
         FROM kafka_ingest.batch AS n
        WHERE n.pipeline = b.pipeline
        ORDER BY n.ordinal DESC
        LIMIT 1) AS latest
 WHERE b.batch_id = %(batch_id)s::uuid
