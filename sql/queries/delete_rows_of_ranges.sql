-- Delete the rows of the target in ranges of offsets, by identity, whatever batch wrote them.
-- Identifiers: target, and its metadata columns topic, generation, partition, offset_column.
-- Parameters: topic, generation, partition, range_start, range_end as arrays: one range a partition.
-- Locks: the rows (after pipeline, batches and positions). Safe to run twice: the second time finds none.
-- Returns the number of deleted rows of each partition that had some.
WITH deleted AS (
    DELETE FROM {target} AS t
    USING unnest(
        %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(range_start)s::bigint[],
        %(range_end)s::bigint[]
    ) AS r (topic, generation, partition, range_start, range_end)
    WHERE t.{topic} = r.topic
        AND t.{generation} = r.generation
        AND t.{partition} = r.partition
        AND t.{offset_column} >= r.range_start
        AND t.{offset_column} < r.range_end
    RETURNING r.topic, r.partition
)

SELECT topic, partition, count(*) AS deleted
FROM deleted
GROUP BY topic, partition;
