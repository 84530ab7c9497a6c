-- End a hold now, while the claim is the newest: a failed attempt works no more, so nobody should wait for it. The
-- statement never waits: only a heartbeat, a claim, a supersede or a publish locks the row, and after each of them the
-- hold is someone else's, or runs out by itself.
-- Parameters: batch_id, claim. Locks: the hold row. Safe to run twice: a hold that has run out stays as it is.
UPDATE kafka_ingest.batch_hold
SET hold_until = clock_timestamp()
WHERE hold_until > clock_timestamp()
    AND batch_id = (
        SELECT batch_id
        FROM kafka_ingest.batch_hold
        WHERE batch_id = %(batch_id)s::uuid AND claim = %(claim)s
        FOR NO KEY UPDATE SKIP LOCKED
    );
