-- Mark dead letters as resolved whose records are tombstones that the pipeline only counts by now.
-- Identifiers: staged_counted.
-- Parameters: pipeline, request_id.
-- Locks: the dead letters (locked before). Safe to run twice: a resolved dead letter is not touched again.
UPDATE kafka_ingest.dead_letter AS d
SET resolved_at = clock_timestamp(),
    resolution = 'counted',
    request_id = %(request_id)s
FROM {staged_counted} AS s
WHERE d.pipeline = %(pipeline)s
    AND (d.topic, d.generation, d.partition, d."offset") = (s.topic, s.generation, s.partition, s."offset")
    AND d.resolved_at IS NULL;
