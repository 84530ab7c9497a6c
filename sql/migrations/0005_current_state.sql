-- Makes room for pipelines that keep one row a key: counts of deletes and of superseded records, what binds such a
-- pipeline, when a partition was last read to its end, which keys were removed, and a reason for dead letters of change
-- events.
--
-- Counts that exist get 0 for both, since every pipeline so far appends. It is the default while the columns are added,
-- which rewrites no row, however large the ledger is. Batches and ranges without counts, which are few, are set to NULL;
-- the new constraints read each table once.
--
-- Locks: ACCESS EXCLUSIVE on batch, batch_partition, pipeline, committed_offset, dead_letter and dead_letter_request
-- until the migration commits; plans, publishes and reports wait. Safe to run twice: the migration runner applies it
-- once, under an advisory lock.
ALTER TABLE kafka_ingest.batch
    ADD COLUMN deletes bigint DEFAULT 0, -- deletes of keys, also those that hit no row
    ADD COLUMN superseded bigint DEFAULT 0, -- records that a newer version of their key outdid
    DROP CONSTRAINT committed_batch_has_counts;

UPDATE kafka_ingest.batch SET deletes = NULL, superseded = NULL WHERE rows IS NULL;

ALTER TABLE kafka_ingest.batch
    ALTER COLUMN deletes DROP DEFAULT,
    ALTER COLUMN superseded DROP DEFAULT,
    ADD CONSTRAINT committed_batch_has_counts CHECK (
        (state IN ('committed', 'rolled_back')) = (committed_at IS NOT NULL)
        AND num_nulls(committed_at, rows, deletes, superseded, dead_letters, tombstones, filtered, invisible) IN (0, 8)
    );

ALTER TABLE kafka_ingest.batch_partition
    ADD COLUMN deletes bigint DEFAULT 0,
    ADD COLUMN superseded bigint DEFAULT 0,
    DROP CONSTRAINT published_range_has_counts,
    DROP CONSTRAINT counts_are_not_negative,
    DROP CONSTRAINT offsets_are_accounted_for;

UPDATE kafka_ingest.batch_partition SET deletes = NULL, superseded = NULL WHERE rows IS NULL;

ALTER TABLE kafka_ingest.batch_partition
    ALTER COLUMN deletes DROP DEFAULT,
    ALTER COLUMN superseded DROP DEFAULT,
    ADD CONSTRAINT published_range_has_counts CHECK (
        num_nulls(rows, deletes, superseded, dead_letters, tombstones, filtered, invisible)
        = CASE WHEN published THEN 0 ELSE 7 END
    ),
    ADD CONSTRAINT counts_are_not_negative CHECK (
        least(rows, deletes, superseded, dead_letters, tombstones, filtered, invisible) >= 0
    ),
    ADD CONSTRAINT offsets_are_accounted_for CHECK (
        range_end - range_start = rows + deletes + superseded + dead_letters + tombstones + filtered + invisible
    );

ALTER TABLE kafka_ingest.pipeline
    ADD COLUMN upsert jsonb; -- canonical: what binds a pipeline of one row a key; NULL for one that appends

-- Versions of a key are compared with those of its own pipeline only.
CREATE UNIQUE INDEX one_upsert_pipeline_per_table
    ON kafka_ingest.pipeline (target_schema, target_table) WHERE upsert IS NOT NULL;

ALTER TABLE kafka_ingest.committed_offset
    ADD COLUMN caught_up_at timestamptz; -- of the last published plan whose range reached the end offset; NULL: never

ALTER TABLE kafka_ingest.dead_letter
    DROP CONSTRAINT reason_is_known,
    ADD CONSTRAINT reason_is_known CHECK (reason IN (
        'not_utf8', 'malformed', 'wrong_type', 'missing_required', 'out_of_range', 'too_long', 'unsupported_text',
        'tombstone', 'record_time_out_of_range', 'unreadable_headers', 'not_null_violation', 'check_violation',
        'refused_by_database', 'value_did_not_travel'
    ));

ALTER TABLE kafka_ingest.dead_letter_request
    ADD COLUMN superseded bigint NOT NULL DEFAULT 0; -- their key has a newer version: no row

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
