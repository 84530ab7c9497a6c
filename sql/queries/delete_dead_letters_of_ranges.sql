-- Delete the dead letters in ranges of offsets, by identity, resolved ones, too: their records are loaded again.
-- Parameters: pipeline, and topic, generation, partition, range_start, range_end as arrays: one range a partition.
-- Locks: the rows (after pipeline, batches and positions). Safe to run twice: the second time finds none.
-- Returns the number of deleted dead letters of each partition that had some.
WITH deleted AS (
    DELETE FROM kafka_ingest.dead_letter AS d
    USING unnest(
        %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(range_start)s::bigint[],
        %(range_end)s::bigint[]
    ) AS r (topic, generation, partition, range_start, range_end)
    WHERE d.pipeline = %(pipeline)s
        AND d.topic = r.topic
        AND d.generation = r.generation
        AND d.partition = r.partition
        AND d."offset" >= r.range_start
        AND d."offset" < r.range_end
    RETURNING r.topic, r.partition
)

SELECT topic, partition, count(*) AS deleted
FROM deleted
GROUP BY topic, partition;
