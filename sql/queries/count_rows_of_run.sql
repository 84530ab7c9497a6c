-- Count the rows of the target in pieces of offsets that follow each other, and the offsets that have one. Rows that a
-- resolved dead letter was turned into do not count: no batch counted them.
-- One run a statement, with its bounds as constants: joined with a list of runs, the planner reads the whole table.
-- Identifiers: target, and its metadata columns topic, generation, partition, offset_column.
-- Parameters: pipeline, topic, generation, partition, range_start, range_end, and starts (first offsets of the pieces,
-- in order) as an array. Locks: none. Safe to run twice: reads only.
-- Returns the pieces that have rows, by their place from 1.
SELECT
    width_bucket(t.{offset_column}::bigint, %(starts)s::bigint[]) AS place,
    count(*) AS rows,
    count(DISTINCT t.{offset_column}) AS identities
FROM {target} AS t
WHERE t.{topic} = %(topic)s
    AND t.{generation} = %(generation)s
    AND t.{partition} = %(partition)s
    AND t.{offset_column} >= %(range_start)s
    AND t.{offset_column} < %(range_end)s
    AND NOT EXISTS (
        SELECT
        FROM kafka_ingest.dead_letter AS d
        WHERE d.pipeline = %(pipeline)s
            AND d.topic = %(topic)s
            AND d.generation = %(generation)s
            AND d.partition = %(partition)s
            AND d."offset" = t.{offset_column}
            AND d.resolved_at IS NOT NULL
    )
GROUP BY 1;
