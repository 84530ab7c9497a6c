-- Purpose: close the dead letters of a pipeline that a rebuild did not read: a replay of one would bring back a row that
--   went with everything else that the log does not hold.
-- Identifiers: metadata columns of the staging tables topic, generation, partition, offset_column; staged_rows,
--   staged_deletes, staged_dead_letters, staged_counted.
-- Parameters: pipeline, task and attempt of the winners as arrays.
-- Locks: the dead letters (after batch and positions). Safe to run twice: a closed one is not touched again.
WITH winner AS MATERIALIZED (
    SELECT task, attempt FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
),

change AS (
    SELECT {topic} AS topic, {generation} AS generation, {partition} AS partition, {offset_column} AS "offset"
    FROM {staged_rows}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
    UNION ALL
    SELECT {topic}, {generation}, {partition}, {offset_column}
    FROM {staged_deletes}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
),

was_read AS (
    SELECT topic, generation, partition, "offset" FROM change
    UNION ALL
    SELECT topic, generation, partition, "offset" FROM {staged_dead_letters}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
    UNION ALL
    SELECT topic, generation, partition, "offset" FROM {staged_counted}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
)

UPDATE kafka_ingest.dead_letter AS d
SET resolved_at = clock_timestamp(),
    resolution = 'superseded'
WHERE d.pipeline = %(pipeline)s
    AND d.resolved_at IS NULL
    AND NOT EXISTS (
        SELECT
        FROM was_read AS w
        WHERE (w.topic, w.generation, w.partition, w."offset") = (d.topic, d.generation, d.partition, d."offset")
    )
