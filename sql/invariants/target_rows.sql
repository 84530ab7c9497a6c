-- The target has exactly the rows that the newest committed batch counted in each of its ranges, each identity once.
-- Only the newest batch: it is the latest writer of its ranges, and the check stays quick. Rows that a resolved dead
-- letter was turned into afterwards do not count.
-- Identifiers: target, and its metadata columns topic, generation, partition, offset_column.
-- Parameters: pipeline, batch_id (the newest committed batch). Locks: none. Returns the ranges that differ.
SELECT
    r.batch_id, r.topic, r.generation, r.partition, r.range_start, r.range_end, r.rows,
    count(t.{offset_column}) AS rows_found, count(DISTINCT t.{offset_column}) AS identities_found
FROM kafka_ingest.batch_partition AS r
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
WHERE r.pipeline = %(pipeline)s AND r.batch_id = %(batch_id)s::uuid
GROUP BY r.batch_id, r.topic, r.generation, r.partition
HAVING count(t.{offset_column}) IS DISTINCT FROM r.rows
    OR count(DISTINCT t.{offset_column}) IS DISTINCT FROM r.rows
ORDER BY r.topic, r.partition;
