-- List the migrations that made this ledger, in order.
-- Parameters: none. Locks: none. Safe to run twice: reads only.
SELECT number, name, sha256
FROM kafka_ingest.schema_migration
ORDER BY number;
