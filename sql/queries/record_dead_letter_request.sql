-- Record a request that resolves dead letters: who, why, which, and what became of them. Once before its dead letters
-- are marked, since they refer to it, and once more with the counts.
-- Parameters: one for each column but the time; stayed as JSON text.
-- Locks: the new row (after pipeline and dead letters). Safe to run twice: it sets the counts again; the request was
-- looked up before, with the pipeline locked.
INSERT INTO kafka_ingest.dead_letter_request (
    pipeline, request_id, action, arguments, who, why, replay_id, target_schema, target_table, replayed, counted,
    discarded, superseded, stayed
)
VALUES (
    %(pipeline)s, %(request_id)s, %(action)s, %(arguments)s, %(who)s, %(why)s, %(replay_id)s::uuid, %(target_schema)s,
    %(target_table)s, %(replayed)s, %(counted)s, %(discarded)s, %(superseded)s, %(stayed)s::jsonb
)
ON CONFLICT ON CONSTRAINT one_row_per_dead_letter_request DO UPDATE
SET replayed = excluded.replayed,
    counted = excluded.counted,
    discarded = excluded.discarded,
    superseded = excluded.superseded,
    stayed = excluded.stayed;
