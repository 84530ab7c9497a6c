-- Record a planned batch.
-- Parameters: batch_id, pipeline, request (dag_id, run_id, task_group, map_index, request_number, clear_number,
-- parameters), kind, settings, settings_hash, protocol_version, target_schema, target_table, cluster_id, planned_at,
-- left_out, warnings.
-- Locks: the new row (the pipeline row is locked before).
-- Safe to run twice: a second standing batch of the request or pipeline is refused (one_standing_batch_per_request,
-- one_outstanding_batch_per_pipeline).
INSERT INTO kafka_ingest.batch (
    batch_id, pipeline, dag_id, run_id, task_group, map_index, request_number, clear_number, parameters,
    kind, state, settings, settings_hash, protocol_version, target_schema, target_table, cluster_id, planned_at, left_out,
    warnings
)
VALUES (
    %(batch_id)s::uuid, %(pipeline)s, %(dag_id)s, %(run_id)s, %(task_group)s, %(map_index)s, %(request_number)s,
    %(clear_number)s, %(parameters)s, %(kind)s, 'planned',
    %(settings)s::jsonb, %(settings_hash)s, %(protocol_version)s, %(target_schema)s, %(target_table)s, %(cluster_id)s,
    %(planned_at)s::timestamptz, %(left_out)s::text[], %(warnings)s::text[]
);
