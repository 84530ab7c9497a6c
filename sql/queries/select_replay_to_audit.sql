-- Find the newest replay into the table that the pipeline is bound to, if no batch was committed since: a batch may read
-- its records again.
-- Parameters: pipeline. Locks: none. Safe to run twice: reads only. Returns no row where there is none.
SELECT r.request_id
FROM kafka_ingest.dead_letter_request AS r
JOIN kafka_ingest.pipeline AS p USING (pipeline, target_schema, target_table)
WHERE r.pipeline = %(pipeline)s
    AND r.action = 'replay'
    AND r.at > coalesce((
        SELECT b.committed_at
        FROM kafka_ingest.batch AS b
        WHERE b.pipeline = r.pipeline AND b.state = 'committed'
        ORDER BY b.ordinal DESC
        LIMIT 1
    ), '-infinity')
ORDER BY r.request_number DESC
LIMIT 1;
