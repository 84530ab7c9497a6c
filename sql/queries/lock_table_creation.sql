-- Purpose: let one session at a time create target tables, because IF NOT EXISTS fails when two run at once
--   (unique violation in the catalog).
-- Parameters: none.
-- Locks: an advisory lock of the database, until the transaction ends. Safe to run twice: the lock can be taken again.
SELECT pg_advisory_xact_lock(hashtextextended('kafka_ingest: create target table', 0))
