-- Purpose: take a fold back, so that another one can be made in the same transaction.
-- Parameters: none. Locks: temporary tables of this transaction. Safe to run twice: the second time they are gone.
DROP TABLE IF EXISTS pg_temp.kafka_ingest_known, pg_temp.kafka_ingest_newest, pg_temp.kafka_ingest_fold
