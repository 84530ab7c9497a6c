-- Tell whether the ledger's table of migrations exists.
-- Parameters: none. Locks: none. Safe to run twice: reads only.
SELECT to_regclass('kafka_ingest.schema_migration') IS NOT NULL;
