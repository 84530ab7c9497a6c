-- Purpose: close the dead letters of a pipeline that a rebuild did not read: a replay of one would bring back a row that
--   went with everything else that the log does not hold.
-- Parameters: pipeline.
-- Locks: the dead letters (after batch and positions). Safe to run twice: a closed one is not touched again.
UPDATE kafka_ingest.dead_letter AS d
SET resolved_at = clock_timestamp(),
    resolution = 'superseded'
WHERE d.pipeline = %(pipeline)s
    AND d.resolved_at IS NULL
    AND NOT EXISTS (
        SELECT
        FROM pg_temp.kafka_ingest_read AS w
        WHERE (w.topic, w.generation, w.partition, w."offset") = (d.topic, d.generation, d.partition, d."offset")
    )
