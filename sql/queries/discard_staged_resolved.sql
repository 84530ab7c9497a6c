-- Delete staged records whose resolved dead letter stays (it was discarded, or resolved by hand): they must not be
-- published. Return what the records of all these dead letters in the ranges are now.
-- Identifiers: the staging tables staged_rows with its metadata columns topic_column, generation_column,
-- partition_column, offset_column, staged_dead_letters, staged_counted.
-- Parameters: pipeline, task and attempt of the winners as arrays, and topic, generation, partition, replaced_from,
-- replaced_to (half-open) as arrays.
-- Locks: staged rows, which nobody else writes any more. Safe to run twice: no; batch and positions are locked before.
WITH kept AS MATERIALIZED (
    SELECT d.topic, d.generation, d.partition, d."offset"
    FROM unnest(
        %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(replaced_from)s::bigint[],
        %(replaced_to)s::bigint[]
    ) AS span (topic, generation, partition, replaced_from, replaced_to)
    JOIN kafka_ingest.dead_letter AS d
        ON d.pipeline = %(pipeline)s
        AND d.topic = span.topic
        AND d.generation = span.generation
        AND d.partition = span.partition
        AND d."offset" >= span.replaced_from
        AND d."offset" < span.replaced_to
    WHERE d.resolved_at IS NOT NULL
        AND (d.request_id IS NULL OR d.resolution = 'discarded')
        AND d.resolution <> 'superseded' -- closed by a rebuild, since the log does not hold its record
),

winner AS MATERIALIZED (
    SELECT task, attempt FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
),

discarded_rows AS (
    DELETE FROM {staged_rows} AS r
    USING kept AS k, winner AS w
    WHERE r.{topic_column} = k.topic
        AND r.{generation_column} = k.generation
        AND r.{partition_column} = k.partition
        AND r.{offset_column} = k."offset"
        AND r.stage_task = w.task
        AND r.stage_attempt = w.attempt
    RETURNING k.topic, k.partition
),

discarded_dead_letters AS (
    DELETE FROM {staged_dead_letters} AS r
    USING kept AS k, winner AS w
    WHERE (r.topic, r.generation, r.partition, r."offset") = (k.topic, k.generation, k.partition, k."offset")
        AND r.stage_task = w.task
        AND r.stage_attempt = w.attempt
    RETURNING k.topic, k.partition
),

counted AS (
    SELECT k.topic, k.partition
    FROM {staged_counted} AS r
    JOIN kept AS k USING (topic, generation, partition, "offset")
    JOIN winner AS w ON r.stage_task = w.task AND r.stage_attempt = w.attempt
)

SELECT
    kept.topic,
    kept.partition,
    count(*) AS kept,
    (SELECT count(*) FROM discarded_rows AS r WHERE r.topic = kept.topic AND r.partition = kept.partition) AS rows,
    (
        SELECT count(*) FROM discarded_dead_letters AS r WHERE r.topic = kept.topic AND r.partition = kept.partition
    ) AS dead_letters,
    (SELECT count(*) FROM counted AS r WHERE r.topic = kept.topic AND r.partition = kept.partition) AS tombstones
FROM kept
GROUP BY kept.topic, kept.partition
ORDER BY kept.topic, kept.partition;
