-- Purpose: delete the dead letters of the ranges whose records an upsert pipeline has read again. One that compaction
--   took stays; one that was discarded, or resolved by hand, stays, too, unless with_resolved; a replayed one is a
--   record like any other.
-- Identifiers: staged_rows, staged_deletes with their metadata columns topic, generation, partition, offset_column;
--   staged_dead_letters, staged_counted.
-- Parameters: pipeline, with_resolved, task and attempt of the winners as arrays, and topic, generation, partition,
--   replaced_from, replaced_to (half-open) as arrays.
-- Locks: the deleted dead letters (after batch and positions). Safe to run twice: finds nothing the second time.
WITH winner AS MATERIALIZED (
    SELECT task, attempt FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
),

was_read AS (
    SELECT {topic} AS topic, {generation} AS generation, {partition} AS partition, {offset_column} AS "offset"
    FROM {staged_rows}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
    UNION ALL
    SELECT {topic}, {generation}, {partition}, {offset_column}
    FROM {staged_deletes}
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

DELETE FROM kafka_ingest.dead_letter AS d
USING unnest(
    %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(replaced_from)s::bigint[],
    %(replaced_to)s::bigint[]
) AS s (topic, generation, partition, replaced_from, replaced_to), was_read AS w
WHERE d.pipeline = %(pipeline)s
    AND d.topic = s.topic
    AND d.generation = s.generation
    AND d.partition = s.partition
    AND d."offset" >= s.replaced_from
    AND d."offset" < s.replaced_to
    AND (w.topic, w.generation, w.partition, w."offset") = (d.topic, d.generation, d.partition, d."offset")
    AND (
        %(with_resolved)s
        OR d.resolved_at IS NULL
        OR (d.request_id IS NOT NULL AND d.resolution <> 'discarded')
    )
