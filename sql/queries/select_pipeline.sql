-- Read what binds a pipeline since its first plan; no row before it.
-- Parameters: pipeline. Locks: none. Safe to run twice: reads only.
SELECT
    pipeline, target_schema, target_table, cluster_id, isolation_level, first_run::text AS first_run, topic_column,
    generation_column, partition_column, offset_column, upsert::text AS upsert
FROM kafka_ingest.pipeline
WHERE pipeline = %(pipeline)s;
