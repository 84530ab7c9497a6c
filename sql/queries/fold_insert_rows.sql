-- Purpose: insert the newest staged row of each key that has none. Where somebody else has inserted one meanwhile, the
--   key's index refuses it. (ON CONFLICT DO NOTHING would make each row half as dear again.)
-- Identifiers: target, staged_rows, columns, columns_of_s; applies.
-- Parameters: is_partial, first, last (a stretch [first, last) of the fold's file, ctid as text).
-- Locks: the new rows. Safe to run twice: the second time the key refuses them.
INSERT INTO {target} ({columns})
SELECT {columns_of_s}
FROM pg_temp.kafka_ingest_fold AS f
JOIN {staged_rows} AS s ON s.ctid = f.place
{joined_known}
WHERE f.row_place IS NULL
    AND NOT f.is_delete
    AND f.is_partial = %(is_partial)s
    AND {applies}
    AND f.ctid >= %(first)s::tid
    AND f.ctid < %(last)s::tid
