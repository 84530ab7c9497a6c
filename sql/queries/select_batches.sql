-- Read batches, in the order in which they were recorded.
-- Parameters: batch_ids. Locks: none. Safe to run twice: reads only.
SELECT
    batch_id, pipeline, dag_id, run_id, task_group, map_index, request_number, clear_number, parameters, kind, state,
    claim, settings::text AS settings, settings_hash, protocol_version, cluster_id, planned_at, committed_at,
    rows, deletes, superseded, dead_letters, tombstones, filtered, invisible, record_time_min, record_time_max,
    valid_through, announced_at, left_out, warnings
FROM kafka_ingest.batch
WHERE batch_id = ANY (%(batch_ids)s::uuid[])
ORDER BY ordinal;
