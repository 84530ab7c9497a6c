-- Binds the names of the columns by which a row is found again: topic, generation, partition, offset.
--
-- A pipeline that exists gets the names under which its newest committed rows stand, as frozen with their batch. Without
-- a batch nothing was loaded, and the defaults of core/settings.py (MetadataColumns) do.
--
-- Locks: ACCESS EXCLUSIVE on pipeline and position_change until the migration commits; plans and changes wait, a load
-- that is under way does not need them before it has published. Safe to run twice: the migration runner applies it once,
-- under an advisory lock.
ALTER TABLE kafka_ingest.pipeline
    ADD COLUMN topic_column text,
    ADD COLUMN generation_column text,
    ADD COLUMN partition_column text,
    ADD COLUMN offset_column text;

UPDATE kafka_ingest.pipeline AS p
SET topic_column = coalesce(newest.metadata ->> 'topic', 'kafka_topic'),
    generation_column = coalesce(newest.metadata ->> 'generation', 'kafka_generation'),
    partition_column = coalesce(newest.metadata ->> 'partition', 'kafka_partition'),
    offset_column = coalesce(newest.metadata ->> 'offset', 'kafka_offset')
FROM kafka_ingest.pipeline AS bound
LEFT JOIN LATERAL (
    SELECT b.settings -> 'metadata' AS metadata
    FROM kafka_ingest.batch AS b
    WHERE b.pipeline = bound.pipeline
    ORDER BY
        (b.target_schema, b.target_table) = (bound.target_schema, bound.target_table) DESC,
        b.state = 'committed' AND coalesce(b.rows, 0) > 0 DESC,
        b.ordinal DESC
    LIMIT 1
) AS newest ON true
WHERE p.pipeline = bound.pipeline;

ALTER TABLE kafka_ingest.pipeline
    ALTER COLUMN topic_column SET NOT NULL,
    ALTER COLUMN generation_column SET NOT NULL,
    ALTER COLUMN partition_column SET NOT NULL,
    ALTER COLUMN offset_column SET NOT NULL;

ALTER TABLE kafka_ingest.position_change
    DROP CONSTRAINT position_change_kind_is_known,
    ADD CONSTRAINT position_change_kind_is_known CHECK (kind IN (
        'initialised', 'reset', 'lag_skipped', 'loss_accepted', 'topic_recreation_accepted',
        'cluster_change_accepted', 'same_log_under_another_cluster_accepted', 'topic_retired', 'target_changed',
        'isolation_level_changed', 'pipeline_renamed', 'rolled_back', 'identity_columns_changed', 'topic_read_again',
        'topic_id_adopted'
    ));
