-- Purpose: write a row of every staged change into the history; one of a record that was read before takes the place of
--   what that was.
-- Identifiers: history, columns and settings_of_excluded (column = excluded.column, ...), change, unavailable,
--   identity (the columns of a record's identity); columns_of_delete (of a delete: key and version, else NULL);
--   staged_rows, staged_partial, staged_deletes.
-- Parameters: task and attempt of the winners as arrays.
-- Locks: the rows written. Safe to run twice: it writes the same again.
WITH winner AS MATERIALIZED (
    SELECT task, attempt FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
)

INSERT INTO {history} ({columns}, {change}, {unavailable})
SELECT {columns}, 'put', NULL::text[]
FROM {staged_rows}
WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
UNION ALL
SELECT {columns}, 'put', stage_missing
FROM {staged_partial}
WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
UNION ALL
SELECT {columns_of_delete}, 'delete', NULL
FROM {staged_deletes}
WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
ON CONFLICT ({identity}) DO UPDATE
SET {settings_of_excluded}, {change} = excluded.{change}, {unavailable} = excluded.{unavailable}
