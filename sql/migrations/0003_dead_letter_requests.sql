-- Keeps who resolved dead letters, when and why: requests to replay or to discard them, each done once.
--
-- Dead letters that were resolved by hand have no request; their resolution stays the text that somebody wrote.
--
-- Locks: ACCESS EXCLUSIVE on dead_letter until the migration commits; a publish waits for it. Safe to run twice: the
-- migration runner applies it once, under an advisory lock.
CREATE TABLE kafka_ingest.dead_letter_request (
    request_number bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    pipeline       text        NOT NULL,
    request_id     text        NOT NULL,
    action         text        NOT NULL,
    arguments      text        NOT NULL, -- canonical JSON, kept as it came: it is compared as text
    who            text        NOT NULL,
    why            text        NOT NULL,
    at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    replay_id      uuid        NOT NULL, -- the batch id of the rows that it wrote
    target_schema  text        NOT NULL,
    target_table   text        NOT NULL,
    replayed       bigint      NOT NULL, -- became rows of the target
    counted        bigint      NOT NULL, -- tombstones, which the pipeline only counts by now
    discarded      bigint      NOT NULL,
    stayed         jsonb       NOT NULL, -- what still does not fit: reason, records, and where the first one is
    CONSTRAINT one_row_per_dead_letter_request PRIMARY KEY (pipeline, request_id),
    CONSTRAINT dead_letter_request_belongs_to_a_pipeline FOREIGN KEY (pipeline)
        REFERENCES kafka_ingest.pipeline (pipeline) ON UPDATE CASCADE,
    CONSTRAINT dead_letter_action_is_known CHECK (action IN ('replay', 'discard'))
);

ALTER TABLE kafka_ingest.dead_letter
    ADD COLUMN request_id text, -- NULL while unresolved, and where somebody resolved it by hand
    ADD CONSTRAINT dead_letter_was_resolved_by_a_request FOREIGN KEY (pipeline, request_id)
        REFERENCES kafka_ingest.dead_letter_request (pipeline, request_id) ON UPDATE CASCADE,
    ADD CONSTRAINT request_resolves_dead_letter CHECK (request_id IS NULL OR resolved_at IS NOT NULL);

CREATE INDEX dead_letters_of_a_request ON kafka_ingest.dead_letter (pipeline, request_id) WHERE request_id IS NOT NULL;
