-- Purpose: read the records that tasks work on, for tasks without an attempt that has ended.
-- Identifiers: progress (the staging table).
-- Locks: none. Safe to run twice: it only reads.
SELECT DISTINCT topic, partition, first_offset, end_offset
  FROM {progress} AS at_work
 WHERE NOT EXISTS (
           SELECT FROM {progress} AS ended
            WHERE ended.stage_task = at_work.stage_task AND ended.topic IS NULL
       )
 ORDER BY topic, partition, first_offset
