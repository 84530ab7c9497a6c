-- Finds the newest batch of a request, whatever its state.
-- Parameters: pipeline, dag_id, run_id, task_group, map_index, request_number. Locks: none.
-- Safe to run twice: reads only.
SELECT batch_id
FROM kafka_ingest.batch
WHERE pipeline = %(pipeline)s
    AND dag_id = %(dag_id)s
    AND run_id = %(run_id)s
    AND task_group = %(task_group)s
    AND map_index = %(map_index)s
    AND request_number = %(request_number)s
ORDER BY ordinal DESC
LIMIT 1;
