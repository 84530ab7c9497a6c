-- Mark the chosen dead letters as resolved without a row: their records stay out of the table, their bytes stay here.
-- Parameters: pipeline, request_id.
-- Locks: the dead letters (locked before). Safe to run twice: a resolved dead letter is not touched again.
UPDATE kafka_ingest.dead_letter AS d
SET resolved_at = clock_timestamp(),
    resolution = 'discarded',
    request_id = %(request_id)s
FROM pg_temp.kafka_ingest_chosen AS c
WHERE d.pipeline = %(pipeline)s
    AND (d.topic, d.generation, d.partition, d."offset") = (c.topic, c.generation, c.partition, c."offset")
    AND d.resolved_at IS NULL;
