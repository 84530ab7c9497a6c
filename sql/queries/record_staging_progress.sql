-- Purpose: store the progress of a task and the records that it works on: known even if its process is killed.
-- Identifiers: progress (the staging table). Parameters: stage_task, stage_attempt, records, offsets; topic, partition,
-- first_offset, end_offset (NULL when the task has ended).
-- Locks: the task's own row. Safe to run twice: the second run writes the same values.
INSERT INTO {progress} (stage_task, stage_attempt, records, offsets, topic, partition, first_offset, end_offset)
VALUES (
    %(stage_task)s, %(stage_attempt)s, %(records)s, %(offsets)s,
    %(topic)s, %(partition)s, %(first_offset)s, %(end_offset)s
)
ON CONFLICT (stage_task, stage_attempt) DO UPDATE SET
    records = excluded.records, offsets = excluded.offsets, topic = excluded.topic, partition = excluded.partition,
    first_offset = excluded.first_offset, end_offset = excluded.end_offset
