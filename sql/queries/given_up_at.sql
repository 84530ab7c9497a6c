-- Purpose: read when each pipeline that is bound to a table gave up the rows that it had loaded; NULL for never.
--   That is the newest change-target, or the newest reset of all positions to the log start: with both the operator
--   says that the content of the table is loaded from then on. Batches and position changes are recorded under the
--   pipeline's lock, so their times tell their order.
-- Parameters: schema, table (names without quotes).
-- Locks: none. Safe to run twice: it only reads.
SELECT p.pipeline, max(change.at) AS given_up_at
  FROM kafka_ingest.pipeline AS p
  LEFT JOIN kafka_ingest.position_change AS change
    ON change.pipeline = p.pipeline
   AND (
        change.kind = 'target_changed'
        OR (
            change.kind = 'reset'
            AND (change.details ->> 'arguments')::jsonb
            = '{"change": "ResetToPlace", "only": {"partitions": [], "topics": []}, "to": "earliest"}'
        )
   )
 WHERE p.target_schema = %(schema)s
   AND p.target_table = %(table)s
 GROUP BY p.pipeline
 ORDER BY p.pipeline
