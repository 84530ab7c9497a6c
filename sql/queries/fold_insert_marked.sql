-- Purpose: insert a marked row for each key whose newest change is a delete and that has no row: a record that comes
--   late must find it.
-- Identifiers: target, staged_rows, staged_deletes, columns, columns_of_mark; applies.
-- Parameters: is_partial, first, last (a stretch [first, last) of the fold's file, ctid as text).
-- Locks: the new rows. Safe to run twice: the second time the key refuses them.
INSERT INTO {target} ({columns})
SELECT {columns_of_mark}
FROM pg_temp.kafka_ingest_fold AS f
JOIN {staged_deletes} AS d ON d.ctid = f.place
LEFT JOIN {staged_rows} AS s ON s.ctid = f.put_place
{joined_known}
WHERE f.row_place IS NULL
    AND f.is_delete
    AND f.put_is_partial = %(is_partial)s
    AND {applies}
    AND f.ctid >= %(first)s::tid
    AND f.ctid < %(last)s::tid
