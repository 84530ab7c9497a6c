-- Purpose: mark the row of each key whose newest change is a delete.
-- Identifiers: target, staged_rows, staged_deletes, settings_of_mark (column = ..., ...); applies.
-- Parameters: is_partial, first, last (a stretch [first, last) of the fold's file, ctid as text).
-- Locks: the rows, locked before. Safe to run twice: it writes the same again.
UPDATE {target} AS t
SET {settings_of_mark}
FROM pg_temp.kafka_ingest_fold AS f
JOIN {staged_deletes} AS d ON d.ctid = f.place
LEFT JOIN {staged_rows} AS s ON s.ctid = f.put_place
{joined_known}
WHERE t.tableoid = f.row_table
    AND t.ctid = f.row_place
    AND f.is_delete
    AND f.put_is_partial = %(is_partial)s
    AND {applies}
    AND f.ctid >= %(first)s::tid
    AND f.ctid < %(last)s::tid
