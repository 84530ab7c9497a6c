-- Delete the rows of the target and the dead letters of the ranges that are read again, by identity. A dead letter that
-- was discarded, or resolved by hand, stays with the row that it was turned into, unless with_resolved; a replayed one
-- is a record like any other.
-- Identifiers: target, its metadata columns topic_column, generation_column, partition_column, offset_column, and the
-- staging tables staged_rows, staged_dead_letters, staged_counted.
-- Parameters: pipeline, with_resolved, first_offsets (how many to name), task and attempt of the winners as arrays, and
-- topic, generation, partition, replaced_from, replaced_to (half-open) as arrays.
-- Locks: the deleted rows (after batch and positions). Safe to run twice: finds nothing the second time.
-- Returns, by topic and partition, what was deleted, and the part of it that is neither staged again nor counted.
WITH span AS MATERIALIZED (
    SELECT topic, generation, partition, replaced_from, replaced_to
    FROM unnest(
        %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(replaced_from)s::bigint[],
        %(replaced_to)s::bigint[]
    ) AS span (topic, generation, partition, replaced_from, replaced_to)
),

gone_rows AS (
    DELETE FROM {target} AS t
    USING span AS s
    WHERE t.{topic_column} = s.topic
        AND t.{generation_column} = s.generation
        AND t.{partition_column} = s.partition
        AND t.{offset_column} >= s.replaced_from
        AND t.{offset_column} < s.replaced_to
        AND (
            %(with_resolved)s
            OR NOT EXISTS (
                SELECT
                FROM kafka_ingest.dead_letter AS d
                WHERE d.pipeline = %(pipeline)s
                    AND d.topic = s.topic
                    AND d.generation = s.generation
                    AND d.partition = s.partition
                    AND d."offset" = t.{offset_column}
                    AND d.resolved_at IS NOT NULL
                    AND (d.request_id IS NULL OR d.resolution = 'discarded')
            )
        )
    RETURNING s.topic, s.generation, s.partition, t.{offset_column} AS "offset"
),

gone_dead_letters AS (
    DELETE FROM kafka_ingest.dead_letter AS d
    USING span AS s
    WHERE d.pipeline = %(pipeline)s
        AND d.topic = s.topic
        AND d.generation = s.generation
        AND d.partition = s.partition
        AND d."offset" >= s.replaced_from
        AND d."offset" < s.replaced_to
        AND (
            %(with_resolved)s
            OR d.resolved_at IS NULL
            OR (d.request_id IS NOT NULL AND d.resolution <> 'discarded')
        )
    RETURNING d.topic, d.generation, d.partition, d."offset"
),

gone AS (
    SELECT topic, generation, partition, "offset", true AS is_row FROM gone_rows
    UNION ALL
    SELECT topic, generation, partition, "offset", false AS is_row FROM gone_dead_letters
),

winner AS MATERIALIZED (
    SELECT task, attempt FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
),

staged AS (
    SELECT {topic_column} AS topic, {generation_column} AS generation, {partition_column} AS partition,
        {offset_column} AS "offset"
    FROM {staged_rows}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
    UNION ALL
    SELECT topic, generation, partition, "offset"
    FROM {staged_dead_letters}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
    UNION ALL
    SELECT topic, generation, partition, "offset"
    FROM {staged_counted}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
)

SELECT
    gone.topic,
    gone.partition,
    count(*) FILTER (WHERE gone.is_row) AS rows,
    count(*) FILTER (WHERE NOT gone.is_row) AS dead_letters,
    count(*) FILTER (WHERE staged."offset" IS NULL) AS missing,
    (
        array_agg(gone."offset" ORDER BY gone."offset") FILTER (WHERE staged."offset" IS NULL)
    )[1 : %(first_offsets)s] AS first_missing
FROM gone
LEFT JOIN staged USING (topic, generation, partition, "offset")
GROUP BY gone.topic, gone.partition
ORDER BY gone.topic, gone.partition;
