-- Purpose: delete what became of old tries of tasks. Nothing depends on it.
-- Parameters: older_than_days (integer; by the database's clock, since the try began).
-- Locks: the rows, which nobody changes any more. Safe to run twice: the second time there are none.
DELETE FROM kafka_ingest.attempt
 WHERE started_at <= clock_timestamp() - make_interval(days => %(older_than_days)s)
