-- Purpose: make the chunk table ready for the next chunk.
-- Locks: ACCESS EXCLUSIVE on the session's own table. Safe to run twice.
TRUNCATE pg_temp.kafka_ingest_chunk
