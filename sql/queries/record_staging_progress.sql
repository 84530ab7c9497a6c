-- Purpose: say how far a task is.
-- Identifiers: progress (the staging table). Parameters: stage_task, stage_attempt, records, offsets.
-- Locks: the task's own row. Safe to run twice: the second run writes the same values.
INSERT INTO {progress} (stage_task, stage_attempt, records, offsets)
VALUES (%(stage_task)s, %(stage_attempt)s, %(records)s, %(offsets)s)
ON CONFLICT (stage_task, stage_attempt) DO UPDATE SET records = excluded.records, offsets = excluded.offsets
