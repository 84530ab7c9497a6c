-- Read what was recorded for a request that resolves dead letters.
-- Parameters: pipeline, request_id. Locks: none. Safe to run twice: reads only.
SELECT pipeline, request_id, action, arguments, who, why, at, replayed, counted, discarded, superseded, stayed
FROM kafka_ingest.dead_letter_request
WHERE pipeline = %(pipeline)s AND request_id = %(request_id)s;
