-- Purpose: read the status of the given pipelines, one row each. A pipeline without a plan has a row of NULLs.
-- Parameters: pipelines (text[]).
-- Locks: none. Safe to run twice: it only reads.
SELECT named.pipeline,
       pipeline.target_schema || '.' || pipeline.target_table AS target,
       outstanding.batch_id::text AS outstanding_batch_id,
       outstanding.dag_id || ' ' || outstanding.run_id AS outstanding_request,
       CASE WHEN hold.hold_until > clock_timestamp() THEN hold.step END AS step,
       CASE WHEN hold.hold_until > clock_timestamp() THEN hold.staged_offsets END AS staged_offsets,
       hold.total_offsets,
       hold.hold_until,
       newest.batch_id::text AS last_batch_id,
       newest.committed_at AS last_committed_at,
       newest.rows AS last_rows,
       newest.deletes AS last_deletes,
       newest.superseded AS last_superseded,
       newest.dead_letters AS last_dead_letters,
       newest.valid_through,
       (SELECT count(*)
          FROM kafka_ingest.dead_letter AS dead_letter
         WHERE dead_letter.pipeline = named.pipeline AND dead_letter.resolved_at IS NULL) AS unresolved_dead_letters,
       pipeline.upsert IS NOT NULL
           AND has_column_privilege('kafka_ingest.dead_letter', 'key', 'SELECT') AS has_keys,
       ARRAY(SELECT change.column_name
               FROM kafka_ingest.schema_change AS change
              WHERE change.pipeline = named.pipeline
                AND (change.target_schema, change.target_table) = (pipeline.target_schema, pipeline.target_table)
              ORDER BY change.change_number) AS added_columns
  FROM unnest(%(pipelines)s::text[]) WITH ORDINALITY AS named (pipeline, place)
  LEFT JOIN kafka_ingest.pipeline AS pipeline ON pipeline.pipeline = named.pipeline
  LEFT JOIN kafka_ingest.batch AS outstanding ON outstanding.pipeline = named.pipeline AND outstanding.state = 'planned'
  LEFT JOIN kafka_ingest.batch_hold AS hold ON hold.batch_id = outstanding.batch_id
  LEFT JOIN LATERAL (
       SELECT batch.*
         FROM kafka_ingest.batch AS batch
        WHERE batch.pipeline = named.pipeline AND batch.state = 'committed'
        ORDER BY batch.ordinal DESC
        LIMIT 1) AS newest ON true
 ORDER BY named.place
