-- Records what binds a pipeline from its first plan on; inserts no row when another plan was first.
-- Parameters: pipeline, target_schema, target_table, cluster_id, isolation_level, first_run.
-- Locks: the pipeline row; waits for a first plan under way.
-- Safe to run twice: the first row stays.
INSERT INTO kafka_ingest.pipeline (pipeline, target_schema, target_table, cluster_id, isolation_level, first_run)
VALUES (
    %(pipeline)s, %(target_schema)s, %(target_table)s, %(cluster_id)s, %(isolation_level)s, %(first_run)s::jsonb
)
ON CONFLICT (pipeline) DO NOTHING;
