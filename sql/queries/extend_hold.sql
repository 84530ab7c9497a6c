-- A heartbeat: extend the hold and store progress while the claim is the newest. It never waits: only a claim, a
-- supersede or a publish locks the row, and each of them makes this heartbeat meaningless.
-- Parameters: batch_id, claim, hold_seconds, step, staged_records, staged_offsets. Locks: the hold row.
-- Safe to run twice: sets the same values.
UPDATE kafka_ingest.batch_hold
SET hold_until = clock_timestamp() + %(hold_seconds)s * interval '1 second',
    heartbeat_at = clock_timestamp(),
    step = %(step)s,
    staged_records = %(staged_records)s,
    staged_offsets = %(staged_offsets)s
WHERE batch_id = (
    SELECT batch_id
    FROM kafka_ingest.batch_hold
    WHERE batch_id = %(batch_id)s::uuid AND claim = %(claim)s
    FOR NO KEY UPDATE SKIP LOCKED
);
