-- Make a batch committed, with its counts: a published one, or one that was planned without ranges (claim 0). Returns
-- no row unless the batch is planned and the claim is the newest.
-- Parameters: batch_id, claim, rows, deletes, superseded, dead_letters, tombstones, filtered, invisible,
-- record_time_min, record_time_max, valid_through, warnings (of the load, behind those of the plan). Locks: the batch
-- row, locked before. Safe to run twice: the second time finds no planned batch.
UPDATE kafka_ingest.batch
SET state = 'committed',
    committed_at = clock_timestamp(),
    rows = %(rows)s,
    deletes = %(deletes)s,
    superseded = %(superseded)s,
    dead_letters = %(dead_letters)s,
    tombstones = %(tombstones)s,
    filtered = %(filtered)s,
    invisible = %(invisible)s,
    record_time_min = %(record_time_min)s::timestamptz,
    record_time_max = %(record_time_max)s::timestamptz,
    valid_through = %(valid_through)s::timestamptz,
    warnings = warnings || %(warnings)s::text[]
WHERE batch_id = %(batch_id)s::uuid AND state = 'planned' AND claim = %(claim)s;
