-- Record what binds a pipeline from its first plan on; inserts no row when another plan was first.
-- Parameters: pipeline, target_schema, target_table, cluster_id, isolation_level, first_run,
-- topic_column, generation_column, partition_column, offset_column, upsert (NULL for a pipeline that appends).
-- Locks: the pipeline row; waits for a first plan under way.
-- Safe to run twice: the first row stays. A second upsert pipeline of a table is refused (one_upsert_pipeline_per_table).
INSERT INTO kafka_ingest.pipeline (
    pipeline, target_schema, target_table, cluster_id, isolation_level, first_run, topic_column, generation_column,
    partition_column, offset_column, upsert
)
VALUES (
    %(pipeline)s, %(target_schema)s, %(target_table)s, %(cluster_id)s, %(isolation_level)s, %(first_run)s::jsonb,
    %(topic_column)s, %(generation_column)s, %(partition_column)s, %(offset_column)s,
    %(upsert)s::jsonb
)
ON CONFLICT (pipeline) DO NOTHING;
