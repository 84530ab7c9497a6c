-- Count the rows of the target in ranges of offsets, by identity. Rows that a resolved dead letter was turned into do
-- not count: no batch counted them.
-- Identifiers: target, and its metadata columns topic, generation, partition, offset_column.
-- Parameters: pipeline, and topic, generation, partition, range_start, range_end as arrays.
-- Locks: none. Safe to run twice: reads only. Returns a row for each range, in their order.
SELECT count(t.{offset_column}) AS found
FROM unnest(
    %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(range_start)s::bigint[],
    %(range_end)s::bigint[]
) WITH ORDINALITY AS r (topic, generation, partition, range_start, range_end, place)
LEFT JOIN {target} AS t
    ON t.{topic} = r.topic
    AND t.{generation} = r.generation
    AND t.{partition} = r.partition
    AND t.{offset_column} >= r.range_start
    AND t.{offset_column} < r.range_end
    AND NOT EXISTS (
        SELECT
        FROM kafka_ingest.dead_letter AS d
        WHERE d.pipeline = %(pipeline)s
            AND d.topic = r.topic
            AND d.generation = r.generation
            AND d.partition = r.partition
            AND d."offset" = t.{offset_column}
            AND d.resolved_at IS NOT NULL
    )
GROUP BY r.place
ORDER BY r.place;
