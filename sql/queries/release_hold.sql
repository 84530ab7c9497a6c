-- Ends a hold now, while the claim is the newest: an attempt that has failed works no more, so nobody waits for it. It
-- never waits: the row is locked only by a heartbeat, a claim, a supersede or a publish, after each of which it is
-- someone else's, or passes by itself.
-- Parameters: batch_id, claim. Locks: the hold row. Safe to run twice: a hold that has passed stays as it is.
UPDATE kafka_ingest.batch_hold
SET hold_until = clock_timestamp()
WHERE hold_until > clock_timestamp()
    AND batch_id = (
        SELECT batch_id
        FROM kafka_ingest.batch_hold
        WHERE batch_id = %(batch_id)s::uuid AND claim = %(claim)s
        FOR NO KEY UPDATE SKIP LOCKED
    );
