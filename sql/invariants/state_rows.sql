-- The target of an upsert pipeline has, of each range of the newest committed batch, as many rows of that batch as it
-- counted: rows, and deletes where these mark rows. A row that was there before, and whose record the log no longer
-- holds, may stay in the range. Not looked at after a replay, which may have written over some of them.
-- Identifiers: target, its metadata columns topic, generation, partition, offset_column, batch_column.
-- Parameters: pipeline, batch_id (the newest committed batch), marks (whether deletes mark rows). Locks: none.
-- Returns the ranges that differ.
SELECT
    r.batch_id, r.topic, r.generation, r.partition, r.range_start, r.range_end, r.rows, r.deletes,
    count(t.{offset_column}) AS rows_found
FROM kafka_ingest.batch_partition AS r
JOIN kafka_ingest.batch AS b USING (batch_id)
LEFT JOIN {target} AS t
    ON t.{batch_column} = r.batch_id
    AND t.{topic} = r.topic
    AND t.{generation} = r.generation
    AND t.{partition} = r.partition
    AND t.{offset_column} >= r.range_start
    AND t.{offset_column} < r.range_end
WHERE r.pipeline = %(pipeline)s
    AND r.batch_id = %(batch_id)s::uuid
    AND NOT EXISTS (
        SELECT
        FROM kafka_ingest.dead_letter_request AS request
        WHERE request.pipeline = r.pipeline AND request.at > b.committed_at
    )
GROUP BY r.batch_id, r.topic, r.generation, r.partition
HAVING count(t.{offset_column}) IS DISTINCT FROM r.rows + CASE WHEN %(marks)s THEN r.deletes ELSE 0 END
ORDER BY r.topic, r.partition
