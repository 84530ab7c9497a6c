-- Purpose: read the progress of an attempt. A task that Spark runs again or twice counts once, by its furthest attempt.
-- Identifiers: progress (the staging table).
-- Locks: none. Safe to run twice: it only reads.
SELECT coalesce(sum(records), 0)::bigint, coalesce(sum(offsets), 0)::bigint
  FROM (SELECT max(records) AS records, max(offsets) AS offsets FROM {progress} GROUP BY stage_task) AS furthest
