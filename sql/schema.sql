-- The whole schema in one piece, for readers. Not applied by anything: `python -m kafka_ingest migrate` applies
-- sql/migrations, and tests/integration/test_ledger_schema.py proves that both make the same database.

-- The ledger: what was planned, claimed and published, and where every partition stands.
--
-- It lives in the database of the target, so that rows, dead letters, the batch's entry and the new committed offsets
-- become visible in one transaction. Constraints carry the rules and are named for them. Offsets are bigint, ranges
-- half-open; times are timestamptz by this server's clock unless a comment says otherwise.

CREATE SCHEMA kafka_ingest;

CREATE SCHEMA kafka_ingest_staging; -- staging tables of running attempts

CREATE TABLE kafka_ingest.schema_migration (
    number     integer     NOT NULL,
    name       text        NOT NULL,
    sha256     text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_row_per_migration PRIMARY KEY (number)
);

-- What binds a pipeline since its first plan; only a position change alters it.
CREATE TABLE kafka_ingest.pipeline (
    pipeline          text        NOT NULL,
    target_schema     text        NOT NULL,
    target_table      text        NOT NULL,
    cluster_id        text        NOT NULL,
    isolation_level   text        NOT NULL,
    first_run         jsonb       NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic_column      text        NOT NULL, -- this and the next three: the target's columns that identify a row
    generation_column text        NOT NULL,
    partition_column  text        NOT NULL,
    offset_column     text        NOT NULL,
    upsert            jsonb, -- canonical: what binds a pipeline of one row a key; NULL for one that appends
    CONSTRAINT one_row_per_pipeline PRIMARY KEY (pipeline),
    CONSTRAINT isolation_level_is_known CHECK (isolation_level IN ('read_committed', 'read_uncommitted'))
);

-- Versions of a key are compared with those of its own pipeline only.
CREATE UNIQUE INDEX one_upsert_pipeline_per_table
    ON kafka_ingest.pipeline (target_schema, target_table) WHERE upsert IS NOT NULL;

-- Who loads a topic into a table. Two pipeline files, or a renamed one, cannot load a topic twice into one table.
CREATE TABLE kafka_ingest.served_topic (
    target_schema text        NOT NULL,
    target_table  text        NOT NULL,
    cluster_id    text        NOT NULL,
    topic         text        NOT NULL,
    pipeline      text        NOT NULL,
    joined_by     text        NOT NULL,
    joined_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    retired_at    timestamptz,
    CONSTRAINT one_pipeline_per_target_cluster_topic PRIMARY KEY (target_schema, target_table, cluster_id, topic),
    CONSTRAINT served_topic_belongs_to_a_pipeline FOREIGN KEY (pipeline)
        REFERENCES kafka_ingest.pipeline (pipeline) ON UPDATE CASCADE,
    CONSTRAINT joined_by_first_plan_or_later CHECK (joined_by IN ('first_plan', 'later_plan'))
);

CREATE INDEX topics_of_a_pipeline ON kafka_ingest.served_topic (pipeline, topic);

-- One row a request's batch. Rows are never deleted; the state only moves forward.
CREATE TABLE kafka_ingest.batch (
    batch_id         uuid        NOT NULL,
    ordinal          bigint      NOT NULL GENERATED ALWAYS AS IDENTITY, -- order in which batches were recorded
    pipeline         text        NOT NULL,
    dag_id           text        NOT NULL,
    run_id           text        NOT NULL,
    task_group       text        NOT NULL,
    map_index        integer     NOT NULL,
    request_number   integer     NOT NULL,
    clear_number     integer     NOT NULL, -- of a backfill run: how often it had been cleared; 0 for other runs
    parameters       text        NOT NULL, -- canonical JSON, kept as it came: it is compared as text
    kind             text        NOT NULL,
    state            text        NOT NULL,
    claim            integer     NOT NULL DEFAULT 0, -- fencing token: 0 before the first claim
    settings         jsonb       NOT NULL, -- frozen, without secrets
    settings_hash    text        NOT NULL,
    protocol_version integer     NOT NULL,
    target_schema    text        NOT NULL,
    target_table     text        NOT NULL,
    cluster_id       text        NOT NULL,
    planned_at       timestamptz NOT NULL, -- when Kafka was asked, by the planner's clock
    recorded_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    committed_at     timestamptz,
    rows             bigint,
    dead_letters     bigint,
    tombstones       bigint,
    filtered         bigint,
    invisible        bigint,
    record_time_min  timestamptz,
    record_time_max  timestamptz,
    valid_through    timestamptz, -- minimum over all partitions of the pipeline; NULL when one is unknown
    announced_at     timestamptz,
    announced_by     text, -- identity of the request that announced it, as a JSON array
    left_out         text[]      NOT NULL DEFAULT '{}',
    warnings         text[]      NOT NULL DEFAULT '{}', -- what the plan warned of
    deletes          bigint, -- deletes of keys, also those that hit no row
    superseded       bigint, -- records that a newer version of their key outdid
    CONSTRAINT one_row_per_batch PRIMARY KEY (batch_id),
    CONSTRAINT batch_names_its_pipeline UNIQUE (batch_id, pipeline),
    CONSTRAINT batch_belongs_to_a_pipeline FOREIGN KEY (pipeline)
        REFERENCES kafka_ingest.pipeline (pipeline) ON UPDATE CASCADE,
    CONSTRAINT batch_kind_is_known CHECK (kind IN ('live', 'reload')),
    CONSTRAINT batch_state_is_known CHECK (state IN ('planned', 'committed', 'superseded', 'rolled_back')),
    CONSTRAINT claim_is_not_negative CHECK (claim >= 0),
    CONSTRAINT committed_batch_has_counts CHECK (
        (state IN ('committed', 'rolled_back')) = (committed_at IS NOT NULL)
        AND num_nulls(committed_at, rows, deletes, superseded, dead_letters, tombstones, filtered, invisible) IN (0, 8)
    ),
    CONSTRAINT announced_batch_names_who CHECK ((announced_at IS NULL) = (announced_by IS NULL))
)
WITH (fillfactor = 80);

CREATE UNIQUE INDEX one_outstanding_batch_per_pipeline ON kafka_ingest.batch (pipeline) WHERE state = 'planned';

CREATE UNIQUE INDEX one_standing_batch_per_request
    ON kafka_ingest.batch (pipeline, dag_id, run_id, task_group, map_index, request_number)
    WHERE state IN ('planned', 'committed');

CREATE INDEX batches_of_a_request
    ON kafka_ingest.batch (pipeline, dag_id, run_id, task_group, map_index, request_number, ordinal);

CREATE INDEX batches_of_a_pipeline ON kafka_ingest.batch (pipeline, ordinal);

CREATE INDEX batches_to_announce
    ON kafka_ingest.batch (pipeline, ordinal) WHERE state = 'committed' AND announced_at IS NULL;

CREATE INDEX batches_announced_by ON kafka_ingest.batch (pipeline, announced_by) WHERE announced_by IS NOT NULL;

CREATE FUNCTION kafka_ingest.batch_state_changes_only_forward() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF new.state <> old.state
       AND (old.state, new.state) NOT IN (('planned', 'committed'), ('planned', 'superseded'), ('committed', 'rolled_back'))
    THEN
        RAISE EXCEPTION 'batch % cannot go from state % to state %', old.batch_id, old.state, new.state
            USING ERRCODE = 'check_violation', CONSTRAINT = 'batch_state_changes_only_forward';
    END IF;
    IF new.claim < old.claim THEN
        RAISE EXCEPTION 'batch %: claim cannot fall from % to %', old.batch_id, old.claim, new.claim
            USING ERRCODE = 'check_violation', CONSTRAINT = 'batch_state_changes_only_forward';
    END IF;
    RETURN new;
END
$$;

CREATE TRIGGER batch_state_changes_only_forward
    BEFORE UPDATE OF state, claim ON kafka_ingest.batch
    FOR EACH ROW EXECUTE FUNCTION kafka_ingest.batch_state_changes_only_forward();

CREATE FUNCTION kafka_ingest.batch_rows_are_never_deleted() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of kafka_ingest.batch are never deleted'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'batch_rows_are_never_deleted';
END
$$;

CREATE TRIGGER batch_rows_are_never_deleted
    BEFORE DELETE OR TRUNCATE ON kafka_ingest.batch
    FOR EACH STATEMENT EXECUTE FUNCTION kafka_ingest.batch_rows_are_never_deleted();

-- Who holds the pipeline while a batch is planned. A row of its own, so that heartbeats never wait for the batch row
-- and never make it grow; no index on a column that changes, and room in the page, keep its updates heap-only.
CREATE TABLE kafka_ingest.batch_hold (
    batch_id       uuid        NOT NULL,
    claim          integer     NOT NULL DEFAULT 0, -- the batch's claim: an older attempt's heartbeat finds no row
    hold_until     timestamptz NOT NULL,
    heartbeat_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    step           text        NOT NULL,
    staged_records bigint      NOT NULL DEFAULT 0,
    staged_offsets bigint      NOT NULL DEFAULT 0,
    total_offsets  bigint      NOT NULL,
    CONSTRAINT one_hold_per_batch PRIMARY KEY (batch_id),
    CONSTRAINT hold_belongs_to_a_batch FOREIGN KEY (batch_id) REFERENCES kafka_ingest.batch (batch_id)
)
WITH (fillfactor = 50);

-- The position: next offset to read, for each partition of each pipeline.
CREATE TABLE kafka_ingest.committed_offset (
    pipeline         text        NOT NULL,
    topic            text        NOT NULL,
    partition        integer     NOT NULL,
    generation       integer     NOT NULL, -- accepted re-creations of the topic
    topic_id         text, -- NULL where the broker tells none
    cluster_id       text        NOT NULL,
    committed_offset bigint      NOT NULL,
    loaded_to        bigint      NOT NULL, -- the greatest committed offset that this generation ever had
    line             integer     NOT NULL, -- backward changes so far
    leader_epoch     integer,
    valid_through    timestamptz,
    batch_id         uuid, -- the batch that last published this partition
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    caught_up_at     timestamptz, -- of the last published plan whose range reached the end offset; NULL: never
    CONSTRAINT one_position_per_partition PRIMARY KEY (pipeline, topic, partition),
    CONSTRAINT position_belongs_to_a_pipeline FOREIGN KEY (pipeline)
        REFERENCES kafka_ingest.pipeline (pipeline) ON UPDATE CASCADE,
    CONSTRAINT position_was_set_by_a_batch FOREIGN KEY (batch_id) REFERENCES kafka_ingest.batch (batch_id),
    CONSTRAINT partition_is_not_negative CHECK (partition >= 0),
    CONSTRAINT committed_offset_is_not_negative CHECK (committed_offset >= 0),
    CONSTRAINT loaded_to_is_the_greatest CHECK (committed_offset <= loaded_to),
    CONSTRAINT generation_is_not_negative CHECK (generation >= 0),
    CONSTRAINT line_is_not_negative CHECK (line >= 0)
)
WITH (fillfactor = 70);

-- What the newest plan saw of each partition's log, and where it is compared from: how fast retention goes, and since
-- when an open transaction holds offsets back. Warnings rest on it, no position does. Times are the planner's.
CREATE TABLE kafka_ingest.log_observation (
    pipeline              text        NOT NULL,
    topic                 text        NOT NULL,
    partition             integer     NOT NULL,
    topic_id              text,
    seen_at               timestamptz NOT NULL,
    log_start_offset      bigint      NOT NULL,
    end_offset            bigint      NOT NULL,
    high_watermark        bigint      NOT NULL,
    rate_from_at          timestamptz NOT NULL, -- the rate of retention is measured from here
    rate_from_offset      bigint      NOT NULL,
    next_rate_from_at     timestamptz NOT NULL,
    next_rate_from_offset bigint      NOT NULL,
    pinned_since          timestamptz, -- NULL while the end offset is the high watermark
    pinned_high_watermark bigint,
    CONSTRAINT one_observation_per_partition PRIMARY KEY (pipeline, topic, partition),
    CONSTRAINT observation_belongs_to_a_pipeline FOREIGN KEY (pipeline)
        REFERENCES kafka_ingest.pipeline (pipeline) ON UPDATE CASCADE
)
WITH (fillfactor = 50);

-- The frozen ranges of a batch, and what became of their offsets once it is published.
CREATE TABLE kafka_ingest.batch_partition (
    batch_id               uuid    NOT NULL,
    pipeline               text    NOT NULL,
    topic                  text    NOT NULL,
    generation             integer NOT NULL,
    partition              integer NOT NULL,
    topic_id               text,
    line                   integer NOT NULL,
    range_start            bigint  NOT NULL, -- first offset to read
    range_end              bigint  NOT NULL, -- first offset not to read
    committed_before       bigint  NOT NULL,
    committed_after        bigint  NOT NULL,
    loaded_to              bigint  NOT NULL, -- that of the position at the plan: what lies below it is replaced
    leader_epoch           integer,
    reaches_high_watermark boolean NOT NULL,
    published              boolean NOT NULL DEFAULT false,
    rows                   bigint,
    dead_letters           bigint,
    tombstones             bigint,
    filtered               bigint,
    invisible              bigint, -- markers, aborted and compacted records
    record_time_min        timestamptz,
    record_time_max        timestamptz,
    deletes                bigint, -- deletes of keys, also those that hit no row
    superseded             bigint, -- records that a newer version of their key outdid
    CONSTRAINT one_range_per_batch_and_partition PRIMARY KEY (batch_id, topic, generation, partition),
    CONSTRAINT range_belongs_to_a_batch FOREIGN KEY (batch_id, pipeline)
        REFERENCES kafka_ingest.batch (batch_id, pipeline) ON UPDATE CASCADE,
    CONSTRAINT range_is_not_empty CHECK (0 <= range_start AND range_start < range_end),
    CONSTRAINT no_gap_before_range CHECK (range_start <= committed_before),
    CONSTRAINT loaded_to_is_not_below CHECK (committed_before <= loaded_to),
    CONSTRAINT committed_after_is_the_greater CHECK (committed_after = greatest(committed_before, range_end)),
    CONSTRAINT published_range_has_counts CHECK (
        num_nulls(rows, deletes, superseded, dead_letters, tombstones, filtered, invisible)
        = CASE WHEN published THEN 0 ELSE 7 END
    ),
    CONSTRAINT counts_are_not_negative CHECK (
        least(rows, deletes, superseded, dead_letters, tombstones, filtered, invisible) >= 0
    ),
    CONSTRAINT offsets_are_accounted_for CHECK (
        range_end - range_start = rows + deletes + superseded + dead_letters + tombstones + filtered + invisible
    )
);

-- Within a line each range begins where the one before ended: no two begin, and no two end, at the same position.
CREATE UNIQUE INDEX ranges_form_a_chain
    ON kafka_ingest.batch_partition (pipeline, topic, generation, partition, line, committed_before)
    WHERE published AND committed_after > committed_before;

CREATE UNIQUE INDEX ranges_end_a_chain_once
    ON kafka_ingest.batch_partition (pipeline, topic, generation, partition, line, committed_after)
    WHERE published AND committed_after > committed_before;

-- Where a reload of a span of time begins (queries/loaded_from.sql).
CREATE INDEX ranges_by_record_time ON kafka_ingest.batch_partition (pipeline, record_time_max) WHERE published;

-- Who resolved dead letters, when and why: requests to replay or to discard them, each done once.
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
    superseded     bigint      NOT NULL DEFAULT 0, -- their key has a newer version: no row
    CONSTRAINT one_row_per_dead_letter_request PRIMARY KEY (pipeline, request_id),
    CONSTRAINT dead_letter_request_belongs_to_a_pipeline FOREIGN KEY (pipeline)
        REFERENCES kafka_ingest.pipeline (pipeline) ON UPDATE CASCADE,
    CONSTRAINT dead_letter_action_is_known CHECK (action IN ('replay', 'discard'))
);

-- Records that did not fit, with their original bytes. The reasons are the closed list of core/dead_letters.py.
CREATE TABLE kafka_ingest.dead_letter (
    pipeline         text        NOT NULL,
    topic            text        NOT NULL,
    generation       integer     NOT NULL,
    partition        integer     NOT NULL,
    "offset"         bigint      NOT NULL,
    key              bytea,
    value            bytea,
    header_names     text[], -- in order; names can repeat
    header_values    bytea[],
    record_time_ms   bigint, -- Kafka's milliseconds since 1970, exactly as they came
    record_time_type text,
    record_time      timestamptz GENERATED ALWAYS AS ( -- for people; NULL outside the years 1 to 9999
        CASE
            -- Days and the rest apart: an interval is multiplied as a float, which is exact only up to 2^53.
            WHEN record_time_ms BETWEEN -62135596800000 AND 253402300799999
            THEN (
                timestamp '1970-01-01 00:00:00'
                + (record_time_ms / 86400000) * interval '1 day'
                + (record_time_ms % 86400000) * interval '1 millisecond'
            ) AT TIME ZONE 'UTC'
        END
    ) STORED,
    reason           text        NOT NULL,
    detail           text        NOT NULL,
    batch_id         uuid        NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    resolved_at      timestamptz,
    resolution       text,
    request_id       text, -- NULL while unresolved, and where somebody resolved it by hand
    CONSTRAINT one_dead_letter_per_record PRIMARY KEY (pipeline, topic, generation, partition, "offset"),
    CONSTRAINT dead_letter_belongs_to_a_batch FOREIGN KEY (batch_id, pipeline)
        REFERENCES kafka_ingest.batch (batch_id, pipeline) ON UPDATE CASCADE,
    CONSTRAINT headers_are_pairs CHECK (
        (header_names IS NULL) = (header_values IS NULL)
        AND cardinality(header_names) = cardinality(header_values)
    ),
    CONSTRAINT record_time_has_a_type CHECK (
        (record_time_ms IS NULL) = (record_time_type IS NULL) AND record_time_type IN ('create', 'log_append')
    ),
    CONSTRAINT reason_is_known CHECK (reason IN (
        'not_utf8', 'malformed', 'wrong_type', 'missing_required', 'out_of_range', 'too_long', 'unsupported_text',
        'tombstone', 'record_time_out_of_range', 'unreadable_headers', 'not_null_violation', 'check_violation',
        'refused_by_database', 'value_did_not_travel'
    )),
    CONSTRAINT resolved_dead_letter_says_how CHECK ((resolved_at IS NULL) = (resolution IS NULL)),
    CONSTRAINT dead_letter_was_resolved_by_a_request FOREIGN KEY (pipeline, request_id)
        REFERENCES kafka_ingest.dead_letter_request (pipeline, request_id) ON UPDATE CASCADE,
    CONSTRAINT request_resolves_dead_letter CHECK (request_id IS NULL OR resolved_at IS NOT NULL)
);

CREATE INDEX dead_letters_of_a_batch ON kafka_ingest.dead_letter (batch_id, topic, generation, partition, "offset");

CREATE INDEX unresolved_dead_letters ON kafka_ingest.dead_letter (pipeline, created_at) WHERE resolved_at IS NULL;

CREATE INDEX dead_letters_of_a_pipeline ON kafka_ingest.dead_letter (pipeline, created_at);

CREATE INDEX dead_letters_of_a_request ON kafka_ingest.dead_letter (pipeline, request_id) WHERE request_id IS NOT NULL;

-- Every change of a position that is not a published batch: who, when, why, from, to. Idempotent by request id.
-- Columns from_* are NULL for a partition that had no position; topic and partition are NULL for a change of the whole
-- pipeline.
CREATE TABLE kafka_ingest.position_change (
    change_number   bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    request_id      text        NOT NULL,
    kind            text        NOT NULL,
    pipeline        text        NOT NULL,
    topic           text,
    partition       integer,
    who             text        NOT NULL,
    at              timestamptz NOT NULL DEFAULT clock_timestamp(),
    why             text        NOT NULL,
    from_offset     bigint,
    from_generation integer,
    from_line       integer,
    from_topic_id   text,
    from_cluster_id text,
    to_offset       bigint,
    to_generation   integer,
    to_line         integer,
    to_topic_id     text,
    to_cluster_id   text,
    details         jsonb       NOT NULL DEFAULT '{}',
    CONSTRAINT one_row_per_position_change PRIMARY KEY (change_number),
    CONSTRAINT position_change_belongs_to_a_pipeline FOREIGN KEY (pipeline)
        REFERENCES kafka_ingest.pipeline (pipeline) ON UPDATE CASCADE,
    CONSTRAINT position_change_kind_is_known CHECK (kind IN (
        'initialised', 'reset', 'lag_skipped', 'loss_accepted', 'topic_recreation_accepted',
        'cluster_change_accepted', 'same_log_under_another_cluster_accepted', 'topic_retired', 'target_changed',
        'isolation_level_changed', 'pipeline_renamed', 'rolled_back', 'identity_columns_changed', 'topic_read_again',
        'topic_id_adopted'
    )),
    CONSTRAINT partition_of_a_topic CHECK (partition IS NULL OR topic IS NOT NULL)
);

-- NULLS NOT DISTINCT needs PostgreSQL 15.
CREATE UNIQUE INDEX one_change_per_request_and_partition
    ON kafka_ingest.position_change (request_id, pipeline, coalesce(topic, ''), coalesce(partition, -1));

CREATE INDEX position_changes_of_a_partition
    ON kafka_ingest.position_change (pipeline, topic, partition, to_generation, to_line, to_offset);

CREATE INDEX position_changes_of_a_pipeline ON kafka_ingest.position_change (pipeline, change_number);

-- Columns that loads have added to targets for fields that no column reads (new_fields: add_column): who, when, why. A
-- batch's mapping is the pipeline file and these rows together. Rows are only ever added, as the columns are.
CREATE TABLE kafka_ingest.schema_change (
    change_number bigint      NOT NULL GENERATED ALWAYS AS IDENTITY, -- order in which columns were added
    pipeline      text        NOT NULL,
    target_schema text        NOT NULL,
    target_table  text        NOT NULL,
    column_name   text        NOT NULL,
    column_type   text        NOT NULL, -- what is written; the column's own type can hold it
    path          jsonb       NOT NULL, -- keys from the root of the value
    batch_id      uuid        NOT NULL,
    claim         integer     NOT NULL, -- under which the fields were found
    who           text        NOT NULL,
    why           text        NOT NULL,
    at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT one_row_per_schema_change PRIMARY KEY (change_number),
    CONSTRAINT column_is_added_once UNIQUE (pipeline, target_schema, target_table, column_name),
    CONSTRAINT schema_change_belongs_to_a_batch FOREIGN KEY (batch_id, pipeline)
        REFERENCES kafka_ingest.batch (batch_id, pipeline) ON UPDATE CASCADE,
    CONSTRAINT path_has_keys CHECK (jsonb_typeof(path) = 'array' AND path <> '[]')
);

-- Keys whose newest version is a delete that took their row: without this memory a record that is read again would
-- bring the row back. A newer version of the key takes the entry away. A replay writes its own id, which is no batch's:
-- so batch_id has no foreign key.
CREATE TABLE kafka_ingest.removed_key (
    pipeline    text    NOT NULL,
    key_hash    bytea   NOT NULL, -- SHA-256 of the key's text form: a key may be longer than an index allows
    key         text[]  NOT NULL, -- texts of the key columns, in the pipeline's order
    topic       text    NOT NULL, -- this and the next four: the version of the delete
    generation  integer NOT NULL,
    partition   integer NOT NULL,
    "offset"    bigint  NOT NULL,
    order_value text, -- NULL where the offset orders
    batch_id    uuid    NOT NULL,
    CONSTRAINT one_entry_per_removed_key PRIMARY KEY (pipeline, key_hash),
    CONSTRAINT removed_key_belongs_to_a_pipeline FOREIGN KEY (pipeline)
        REFERENCES kafka_ingest.pipeline (pipeline) ON UPDATE CASCADE,
    CONSTRAINT key_hash_is_sha256 CHECK (octet_length(key_hash) = 32),
    CONSTRAINT offset_is_not_negative CHECK ("offset" >= 0)
);

CREATE INDEX removed_keys_by_record ON kafka_ingest.removed_key (pipeline, topic, generation, partition, "offset");

-- What became of each try of a task, for people: no position, batch or decision depends on it.
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
