-- Purpose: create the table of the progress of one attempt; every running task writes its own row.
-- Identifiers: progress (the staging table).
-- Locks: a new object only. Safe to run twice: an existing table stays as it is.
CREATE UNLOGGED TABLE IF NOT EXISTS {progress} (
    stage_task integer NOT NULL,
    stage_attempt bigint NOT NULL,
    records bigint NOT NULL,
    offsets bigint NOT NULL,
    topic text, -- where the task is at work; NULL when it has ended
    partition integer,
    first_offset bigint,
    end_offset bigint,
    PRIMARY KEY (stage_task, stage_attempt)
)
