-- Tell whether the connected role may read what the ledger says of a table (given_up_at.sql, find_loaded_rows.sql).
-- Parameters: none. Locks: none. Safe to run twice: it only reads the catalog.
SELECT count(*) = 3 AS is_readable
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'kafka_ingest'
    AND c.relname IN ('pipeline', 'batch', 'position_change')
    AND has_schema_privilege(n.oid, 'USAGE')
    AND has_table_privilege(c.oid, 'SELECT');
