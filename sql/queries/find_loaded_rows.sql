-- Purpose: what the ledger says stands in a table: of every pipeline that is bound to it, the newest batch that
--   committed rows into it. No row: nothing was loaded, so a table that is not there may be created.
--   What was loaded before the newest change-target, or before the newest reset of all positions to the log start, is
--   given up: the operator has said that everything is loaded anew. Both are recorded under the pipeline's lock, as
--   batches are, so their times tell the order.
-- Parameters: schema, table (names without quotes).
-- Locks: none. Safe to run twice: it only reads.
SELECT p.pipeline, newest.batch_id::text, newest.rows, newest.committed_at
  FROM kafka_ingest.pipeline AS p
 CROSS JOIN LATERAL (
    SELECT max(change.at) AS at
      FROM kafka_ingest.position_change AS change
     WHERE change.pipeline = p.pipeline
       AND (
            change.kind = 'target_changed'
            OR (
                change.kind = 'reset'
                AND (change.details ->> 'arguments')::jsonb
                = '{"change": "ResetToPlace", "only": {"partitions": [], "topics": []}, "to": "earliest"}'
            )
       )
 ) AS begun
 CROSS JOIN LATERAL (
    SELECT b.batch_id, b.rows, b.committed_at
      FROM kafka_ingest.batch AS b
     WHERE b.pipeline = p.pipeline
       AND b.state = 'committed'
       AND b.rows > 0
       AND b.target_schema = p.target_schema
       AND b.target_table = p.target_table
       AND b.recorded_at > coalesce(begun.at, '-infinity')
     ORDER BY b.ordinal DESC
     LIMIT 1
 ) AS newest
 WHERE p.target_schema = %(schema)s
   AND p.target_table = %(table)s
 ORDER BY p.pipeline
