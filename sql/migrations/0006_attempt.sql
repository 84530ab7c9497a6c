-- Makes room for what became of each try of a task: when, how it ended, with which fault, how long its phases took and
-- which Spark application it was. For people: no position, batch or decision depends on it, and nothing is missing when
-- a row is.
--
-- Two indexes let people look at position changes and at resolved dead letters, however many there are.
--
-- Locks: SHARE on position_change and dead_letter until the migration commits; who writes them waits, reports do not.
-- Safe to run twice: the migration runner applies it once, under an advisory lock.
CREATE TABLE kafka_ingest.attempt (
    attempt_number       bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,
    pipeline             text             NOT NULL, -- no foreign key: the first plan may fail before it binds anything
    step                 text             NOT NULL,
    batch_id             uuid, -- NULL where no batch was planned
    dag_id               text             NOT NULL,
    run_id               text             NOT NULL,
    task_id              text             NOT NULL,
    map_index            integer          NOT NULL,
    try_number           integer          NOT NULL,
    started_at           timestamptz      NOT NULL,
    ended_at             timestamptz, -- NULL while it runs, and for good when it was killed
    outcome              text,
    fault                text, -- class of the error, as docs/runbook.md names it
    message              text,
    session_seconds      double precision, -- this and the next two: phases of a load
    stage_seconds        double precision,
    publish_seconds      double precision,
    spark_application_id text,
    spark_ui_url         text,
    CONSTRAINT one_row_per_attempt_number PRIMARY KEY (attempt_number),
    CONSTRAINT one_row_per_try UNIQUE (pipeline, dag_id, run_id, task_id, map_index, try_number),
    CONSTRAINT step_is_known CHECK (step IN ('plan', 'load', 'audit')),
    CONSTRAINT outcome_is_known CHECK (outcome IN ('succeeded', 'failed', 'waiting', 'skipped')),
    CONSTRAINT ended_attempt_has_an_outcome CHECK ((ended_at IS NULL) = (outcome IS NULL)),
    CONSTRAINT only_a_failed_attempt_has_a_fault CHECK (fault IS NULL OR outcome IN ('failed', 'waiting'))
)
WITH (fillfactor = 80);

CREATE INDEX attempts_of_a_pipeline ON kafka_ingest.attempt (pipeline, attempt_number);

CREATE INDEX attempts_of_a_batch ON kafka_ingest.attempt (batch_id) WHERE batch_id IS NOT NULL;

CREATE INDEX position_changes_of_a_pipeline ON kafka_ingest.position_change (pipeline, change_number);

CREATE INDEX dead_letters_of_a_pipeline ON kafka_ingest.dead_letter (pipeline, created_at);
