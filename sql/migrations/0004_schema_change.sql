-- Columns that loads have added to targets for fields that no column reads (new_fields: add_column): who, when, why.
--
-- A batch's mapping is the pipeline file and these rows together. Rows are only ever added, as the columns are.
--
-- Locks: new objects only, and SHARE ROW EXCLUSIVE on batch for the foreign key, until the migration commits. Safe to
-- run twice: the migration runner applies it once, under an advisory lock.
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
