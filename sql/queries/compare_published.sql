-- Purpose: tell whether the staged rows of the winners are in the target, each once, under its identity and batch id.
--   For tables with triggers or rules, which can drop, move, double or alter rows after INSERT has counted them.
-- Identifiers: staging, target, and the metadata columns topic, generation, partition, offset_column,
--   batch_column. Parameters: batch_id, first_offsets (how many to name), task and attempt as arrays; the
--   batch's ranges topic, generation, partition, range_start, range_end (half-open) as arrays.
-- Locks: none. Safe to run twice: it only reads.
WITH staged AS (
    SELECT {topic} AS topic, {generation} AS generation, {partition} AS partition,
        {offset_column} AS "offset"
    FROM {staging}
    WHERE (stage_task, stage_attempt) IN (
        SELECT task, attempt
        FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
    )
),

standing AS (
    SELECT t.{topic} AS topic, t.{generation} AS generation, t.{partition} AS partition,
        t.{offset_column} AS "offset", count(*) AS copies
    FROM {target} AS t
    JOIN unnest(
        %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(range_start)s::bigint[],
        %(range_end)s::bigint[]
    ) AS r (topic, generation, partition, range_start, range_end)
        ON t.{topic} = r.topic
        AND t.{generation} = r.generation
        AND t.{partition} = r.partition
        AND t.{offset_column} >= r.range_start
        AND t.{offset_column} < r.range_end
    WHERE t.{batch_column} = %(batch_id)s::uuid
    GROUP BY 1, 2, 3, 4
),

compared AS (
    SELECT
        topic, partition, "offset", staged."offset" IS NOT NULL AS is_staged, coalesce(standing.copies, 0) AS copies
    FROM staged
    FULL JOIN standing USING (topic, generation, partition, "offset")
)

SELECT
    count(*) FILTER (WHERE is_staged) AS staged,
    count(*) FILTER (WHERE is_staged AND copies = 1) AS sound,
    coalesce(sum(copies), 0)::bigint AS standing,
    (
        array_agg(format('%%s[%%s] offset %%s', topic, partition, "offset") ORDER BY topic, partition, "offset")
        FILTER (WHERE NOT is_staged OR copies <> 1)
    )[1 : %(first_offsets)s] AS first_wrong
FROM compared;
