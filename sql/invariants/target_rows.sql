-- The target has exactly the rows that the newest committed batch counted in each of its ranges, each identity once.
-- Only the newest batch: it is the latest writer of its ranges, except where a later batch was rolled back, and the
-- check stays quick. Rows that a resolved dead letter was turned into afterwards do not count.
-- Identifiers: target, and its metadata columns topic, generation, partition, offset_column.
-- Parameters: pipeline, batch_id (the newest committed batch). Locks: none. Returns the ranges that differ.
SELECT
    r.batch_id, r.topic, r.generation, r.partition, r.range_start, r.range_end, r.rows,
    count(t.{offset_column}) AS rows_found, count(DISTINCT t.{offset_column}) AS identities_found
FROM kafka_ingest.batch_partition AS r
JOIN kafka_ingest.batch AS b USING (batch_id)
LEFT JOIN {target} AS t
    ON t.{topic} = r.topic
    AND t.{generation} = r.generation
    AND t.{partition} = r.partition
    AND t.{offset_column} >= r.range_start
    AND t.{offset_column} < r.range_end
    AND NOT EXISTS (
        SELECT
        FROM kafka_ingest.dead_letter AS d
        WHERE d.pipeline = r.pipeline
            AND d.topic = r.topic
            AND d.generation = r.generation
            AND d.partition = r.partition
            AND d."offset" = t.{offset_column}
            AND d.resolved_at IS NOT NULL
    )
WHERE r.pipeline = %(pipeline)s
    AND r.batch_id = %(batch_id)s::uuid
    AND NOT EXISTS ( -- a roll-back that took its end
        SELECT
        FROM kafka_ingest.position_change AS change
        WHERE change.kind = 'rolled_back'
            AND change.pipeline = r.pipeline
            AND change.topic = r.topic
            AND change.partition = r.partition
            AND change.to_generation = r.generation
            AND change.to_line > r.line
            AND change.to_offset < r.range_end
    )
    AND NOT EXISTS ( -- a batch that is rolled back, and had replaced a part of it
        SELECT
        FROM kafka_ingest.batch AS undone
        JOIN kafka_ingest.batch_partition AS later USING (batch_id)
        WHERE undone.pipeline = r.pipeline
            AND undone.ordinal > b.ordinal
            AND undone.state = 'rolled_back'
            AND later.topic = r.topic
            AND later.generation = r.generation
            AND later.partition = r.partition
            AND later.range_start < r.range_end
            AND r.range_start < later.range_end
    )
GROUP BY r.batch_id, r.topic, r.generation, r.partition
HAVING count(t.{offset_column}) IS DISTINCT FROM r.rows
    OR count(DISTINCT t.{offset_column}) IS DISTINCT FROM r.rows
ORDER BY r.topic, r.partition;
