-- Purpose: name the record at a place in the fold's file.
-- Parameters: place (ctid as text). Locks: none. Safe to run twice: it only reads. No row: the place is empty.
SELECT topic, partition, "offset"
FROM pg_temp.kafka_ingest_fold
WHERE ctid = %(place)s::tid
