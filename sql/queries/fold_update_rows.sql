-- Purpose: write the newest staged row of each key over the row that stands. Other columns of the table stay.
-- Identifiers: target, staged_rows, settings_of_s (column = s.column, ...); applies.
-- Parameters: is_partial, first, last (a stretch [first, last) of the fold's file, ctid as text).
-- Locks: the rows, locked before. Safe to run twice: it writes the same again.
UPDATE {target} AS t
SET {settings_of_s}
FROM pg_temp.kafka_ingest_fold AS f
JOIN {staged_rows} AS s ON s.ctid = f.place
{joined_known}
WHERE t.tableoid = f.row_table
    AND t.ctid = f.row_place
    AND NOT f.is_delete
    AND f.is_partial = %(is_partial)s
    AND {applies}
    AND f.ctid >= %(first)s::tid
    AND f.ctid < %(last)s::tid
