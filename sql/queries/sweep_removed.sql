-- Purpose: delete the removed keys whose delete a rebuild did not read.
-- Identifiers: metadata columns of the staging tables topic, generation, partition, offset_column; f_key_hash,
--   staged_rows, staged_deletes, staged_dead_letters, staged_counted.
-- Parameters: pipeline, task and attempt of the winners as arrays.
-- Locks: the deleted entries. Safe to run twice: finds nothing the second time. No row goes, so none is counted as unread.
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
),

old AS MATERIALIZED (
    SELECT r.key_hash
    FROM kafka_ingest.removed_key AS r
    WHERE r.pipeline = %(pipeline)s
        AND NOT EXISTS (
            SELECT
            FROM was_read AS w
            WHERE (w.topic, w.generation, w.partition, w."offset") = (r.topic, r.generation, r.partition, r."offset")
        )
),

deleted AS (
    DELETE FROM kafka_ingest.removed_key AS r
    USING old AS o
    WHERE r.pipeline = %(pipeline)s AND r.key_hash = o.key_hash
),

forgotten AS (
    UPDATE pg_temp.kafka_ingest_fold AS f
    SET is_removed = false, have_topic = NULL, have_generation = NULL, have_partition = NULL, have_offset = NULL,
        have_order_value = NULL
    FROM old AS o
    WHERE {f_key_hash} = o.key_hash AND f.row_place IS NULL
)

SELECT count(*) AS found
FROM old
