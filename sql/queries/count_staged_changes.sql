-- Purpose: count the rows and deletes that the winners have staged.
-- Identifiers: staged_rows, staged_partial, staged_deletes.
-- Parameters: task and attempt of the winners as arrays.
-- Locks: none. Safe to run twice: it only reads.
WITH winner AS MATERIALIZED (
    SELECT task, attempt FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
)

SELECT
    (
        SELECT count(*)
        FROM {staged_rows}
        WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
    ) + (
        SELECT count(*)
        FROM {staged_partial}
        WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
    ) AS rows,
    (
        SELECT count(*)
        FROM {staged_deletes}
        WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
    ) AS deletes
