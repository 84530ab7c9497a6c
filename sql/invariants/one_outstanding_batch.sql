-- At most one batch of a pipeline is planned.
-- Parameters: pipeline. Locks: none. Returns all planned batches when there are several.
SELECT batch_id, dag_id, run_id, claim, planned_at
FROM (
    SELECT batch_id, ordinal, dag_id, run_id, claim, planned_at, count(*) OVER () AS outstanding
    FROM kafka_ingest.batch
    WHERE pipeline = %(pipeline)s AND state = 'planned'
) AS planned
WHERE outstanding > 1
ORDER BY ordinal;
