-- Purpose: record that a try of a task began, or how it ended.
-- Parameters: pipeline, step, dag_id, run_id, task_id (text), map_index, try_number (integer), batch_id (uuid or NULL),
--   seconds (double precision; since it began), outcome, fault, message (text or NULL; outcome is NULL while it runs),
--   session_seconds, stage_seconds, publish_seconds (double precision or NULL), spark_application_id, spark_ui_url (text
--   or NULL).
-- Locks: the row of the try. Safe to run twice: a try has one row. One that was asked to wait keeps its begin.
INSERT INTO kafka_ingest.attempt AS known (
       pipeline, step, batch_id, dag_id, run_id, task_id, map_index, try_number, started_at, ended_at, outcome, fault,
       message, session_seconds, stage_seconds, publish_seconds, spark_application_id, spark_ui_url)
SELECT %(pipeline)s, %(step)s, %(batch_id)s::uuid, %(dag_id)s, %(run_id)s, %(task_id)s, %(map_index)s, %(try_number)s,
       clock_timestamp() - make_interval(secs => %(seconds)s),
       CASE WHEN %(outcome)s::text IS NOT NULL THEN clock_timestamp() END,
       %(outcome)s, %(fault)s, %(message)s, %(session_seconds)s, %(stage_seconds)s, %(publish_seconds)s,
       %(spark_application_id)s, %(spark_ui_url)s
    ON CONFLICT ON CONSTRAINT one_row_per_try DO UPDATE
   SET step = excluded.step,
       batch_id = coalesce(excluded.batch_id, known.batch_id),
       started_at = CASE WHEN known.outcome = 'waiting' THEN known.started_at ELSE excluded.started_at END,
       ended_at = excluded.ended_at,
       outcome = excluded.outcome,
       fault = excluded.fault,
       message = excluded.message,
       session_seconds = excluded.session_seconds,
       stage_seconds = excluded.stage_seconds,
       publish_seconds = excluded.publish_seconds,
       spark_application_id = coalesce(excluded.spark_application_id, known.spark_application_id),
       spark_ui_url = coalesce(excluded.spark_ui_url, known.spark_ui_url)
