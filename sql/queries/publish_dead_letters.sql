-- Move staged dead letters into the ledger: only those of the winning attempt of each task.
-- Identifiers: staging. Parameters: pipeline, batch_id, and task and attempt as arrays.
-- Locks: the new rows. Safe to run twice: refused (one_dead_letter_per_record).
INSERT INTO kafka_ingest.dead_letter (
    pipeline, topic, generation, partition, "offset", key, value, header_names, header_values, record_time_ms,
    record_time_type, reason, detail, batch_id
)
SELECT
    %(pipeline)s, topic, generation, partition, "offset", key, value, header_names, header_values, record_time_ms,
    record_time_type, reason, detail, %(batch_id)s::uuid
FROM {staging}
WHERE (stage_task, stage_attempt) IN (
    SELECT task, attempt
    FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
);
