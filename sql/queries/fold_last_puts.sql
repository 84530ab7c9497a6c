-- Purpose: find, for each key whose newest change is a delete, its newest staged row: a marked row keeps its values.
-- Identifiers: staged_rows, its metadata columns generation and offset_column; keys; partial_puts (the rows with values
--   that did not travel and that are known); f_is_s (the key columns of fold and staged row are equal).
-- Parameters: task and attempt of the winners as arrays.
-- Locks: the fold, which is this transaction's own. Safe to run twice: it finds the same rows.
WITH winner AS MATERIALIZED (
    SELECT task, attempt FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
),

put AS (
    SELECT {keys}, {generation} AS generation, {offset_column} AS "offset", ctid AS place, false AS is_partial
    FROM {staged_rows}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
    {partial_puts}
)

UPDATE pg_temp.kafka_ingest_fold AS f
SET put_place = p.place, put_is_partial = p.is_partial
FROM (
    SELECT DISTINCT ON (f.number) f.number, s.place, s.is_partial
    FROM pg_temp.kafka_ingest_fold AS f
    JOIN put AS s ON {f_is_s}
    WHERE f.is_delete
    ORDER BY f.number, s.generation DESC, s."offset" DESC
) AS p
WHERE f.number = p.number
