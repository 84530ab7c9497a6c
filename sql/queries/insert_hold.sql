-- Hold the pipeline for a new batch, until its job must have started.
-- Parameters: batch_id, hold_seconds, total_offsets. Locks: the new row. Safe to run twice: refused
-- (one_hold_per_batch).
INSERT INTO kafka_ingest.batch_hold (batch_id, hold_until, step, total_offsets)
VALUES (
    %(batch_id)s::uuid, clock_timestamp() + %(hold_seconds)s * interval '1 second', 'plan', %(total_offsets)s
);
