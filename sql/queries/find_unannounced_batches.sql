-- Find the committed batches of a pipeline that nobody has announced, those that this request has announced before,
-- and the request's own.
-- Parameters: pipeline, announced_by, request (dag_id, run_id, task_group, map_index, request_number). Locks: none.
-- Safe to run twice: reads only. One branch for each index.
SELECT batch_id
FROM kafka_ingest.batch
WHERE pipeline = %(pipeline)s AND state = 'committed' AND announced_at IS NULL
UNION
SELECT batch_id
FROM kafka_ingest.batch
WHERE pipeline = %(pipeline)s AND state = 'committed' AND announced_by = %(announced_by)s
UNION
SELECT batch_id
FROM kafka_ingest.batch
WHERE pipeline = %(pipeline)s
    AND dag_id = %(dag_id)s
    AND run_id = %(run_id)s
    AND task_group = %(task_group)s
    AND map_index = %(map_index)s
    AND request_number = %(request_number)s
    AND state = 'committed';
