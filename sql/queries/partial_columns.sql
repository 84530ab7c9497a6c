-- Purpose: list the columns whose values did not travel with some row that the winners have staged.
-- Identifiers: staged_partial.
-- Parameters: task and attempt of the winners as arrays.
-- Locks: none. Safe to run twice: it only reads.
SELECT DISTINCT unnest(stage_missing) AS name
FROM {staged_partial}
WHERE (stage_task, stage_attempt) IN (
    SELECT task, attempt FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
)
ORDER BY name
