-- Purpose: find, for each key whose newest change is a delete, its newest staged row: a marked row keeps its values.
-- Identifiers: staged_rows, its metadata columns generation and offset_column; f_is_s (the key columns of fold and
--   staged row are equal).
-- Parameters: task and attempt of the winners as arrays.
-- Locks: the fold, which is this transaction's own. Safe to run twice: it finds the same rows.
UPDATE pg_temp.kafka_ingest_fold AS f
SET put_place = p.place
FROM (
    SELECT DISTINCT ON (f.number) f.number, s.ctid AS place
    FROM pg_temp.kafka_ingest_fold AS f
    JOIN {staged_rows} AS s ON {f_is_s}
    WHERE f.is_delete
        AND (s.stage_task, s.stage_attempt) IN (
            SELECT task, attempt FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
        )
    ORDER BY f.number, s.{generation} DESC, s.{offset_column} DESC
) AS p
WHERE f.number = p.number
