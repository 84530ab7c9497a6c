-- Mark dead letters as resolved whose records are staged as rows.
-- Identifiers: staged_rows with its metadata columns topic_column, generation_column, partition_column, offset_column.
-- Parameters: pipeline, request_id.
-- Locks: the dead letters (locked before). Safe to run twice: a resolved dead letter is not touched again.
UPDATE kafka_ingest.dead_letter AS d
SET resolved_at = clock_timestamp(),
    resolution = 'replayed',
    request_id = %(request_id)s
FROM {staged_rows} AS s
WHERE d.pipeline = %(pipeline)s
    AND d.topic = s.{topic_column}
    AND d.generation = s.{generation_column}
    AND d.partition = s.{partition_column}
    AND d."offset" = s.{offset_column}
    AND d.resolved_at IS NULL;
