-- Purpose: delete the rows whose newest change is a delete.
-- Identifiers: target; applies (whether the change is not older than what stands).
-- Parameters: none. Locks: the rows, locked before. Safe to run twice: the second time they are gone.
DELETE FROM {target} AS t
USING pg_temp.kafka_ingest_fold AS f
WHERE t.tableoid = f.row_table
    AND t.ctid = f.row_place
    AND f.is_delete
    AND {applies}
