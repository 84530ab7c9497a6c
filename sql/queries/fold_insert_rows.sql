-- Purpose: insert the newest staged row of each key that has none. A row that somebody else inserts meanwhile is left
--   alone: the caller counts the rows, and tries again later.
-- Identifiers: target, staged_rows, columns, columns_of_s, target_keys; applies.
-- Parameters: first, last (a stretch [first, last) of the fold's file, ctid as text).
-- Locks: the new rows. Safe to run twice: the second time finds them.
INSERT INTO {target} ({columns})
SELECT {columns_of_s}
FROM pg_temp.kafka_ingest_fold AS f
JOIN {staged_rows} AS s ON s.ctid = f.place
WHERE f.row_place IS NULL
    AND NOT f.is_delete
    AND {applies}
    AND f.ctid >= %(first)s::tid
    AND f.ctid < %(last)s::tid
ON CONFLICT ({target_keys}) DO NOTHING
