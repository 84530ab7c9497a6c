-- Read the hold of a batch and its owner; no row once the batch is no longer planned.
-- Parameters: batch_id. Locks: none. Safe to run twice: reads only.
SELECT
    h.batch_id, b.dag_id, b.run_id, b.task_group, b.map_index, b.request_number, b.clear_number,
    b.parameters, h.hold_until, h.step, h.staged_records, h.staged_offsets, h.total_offsets
FROM kafka_ingest.batch_hold AS h
JOIN kafka_ingest.batch AS b USING (batch_id)
WHERE h.batch_id = %(batch_id)s::uuid;
