-- Give the hold of a batch to its newest claim, with no progress yet.
-- Parameters: batch_id, claim, hold_seconds. Locks: the hold row (the batch row is locked before).
-- Safe to run twice: sets the same values.
UPDATE kafka_ingest.batch_hold
SET claim = %(claim)s,
    hold_until = clock_timestamp() + %(hold_seconds)s * interval '1 second',
    heartbeat_at = clock_timestamp(),
    step = 'claim',
    staged_records = 0,
    staged_offsets = 0
WHERE batch_id = %(batch_id)s::uuid;
