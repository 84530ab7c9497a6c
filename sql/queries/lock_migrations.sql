-- Let one migration run at a time, until its transaction ends.
-- Parameters: none. Locks: an advisory transaction lock ('kafka_ingest' read as a number by hashtext).
-- Safe to run twice: the lock is counted and ends with the transaction.
SELECT pg_advisory_xact_lock(hashtext('kafka_ingest'), hashtext('schema_migration'));
