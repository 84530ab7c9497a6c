-- Find the newest batch of a run, with any number and state.
-- Parameters: pipeline, dag_id, run_id, task_group, map_index. Locks: none.
-- Safe to run twice: reads only.
SELECT batch_id
FROM kafka_ingest.batch
WHERE pipeline = %(pipeline)s
    AND dag_id = %(dag_id)s
    AND run_id = %(run_id)s
    AND task_group = %(task_group)s
    AND map_index = %(map_index)s
ORDER BY request_number DESC, ordinal DESC
LIMIT 1;
