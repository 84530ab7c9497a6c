-- Purpose: the newest attempts of a pipeline's tasks, or of those of one batch, the newest first.
-- Parameters: pipeline (text), batch_id (text, NULL: all), limit (integer).
-- Locks: none. Safe to run twice: it only reads.
SELECT a.attempt_number,
       a.step,
       a.batch_id::text AS batch_id,
       a.dag_id,
       a.run_id,
       a.task_id,
       a.map_index,
       a.try_number,
       a.started_at,
       a.ended_at,
       a.outcome,
       a.fault,
       a.message,
       a.session_seconds,
       a.stage_seconds,
       a.publish_seconds,
       a.spark_application_id,
       a.spark_ui_url
  FROM kafka_ingest.attempt AS a
 WHERE a.pipeline = %(pipeline)s
   AND (%(batch_id)s::uuid IS NULL OR a.batch_id = %(batch_id)s::uuid)
 ORDER BY a.attempt_number DESC
 LIMIT %(limit)s
