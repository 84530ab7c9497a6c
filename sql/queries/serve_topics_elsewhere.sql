-- Let a pipeline serve its topics into another table, or from another cluster; retired ones stay retired. Return the
-- topics, without those that another pipeline serves there.
-- Parameters: pipeline, and target_schema, target_table, cluster_id before (from_*) and after (to_*).
-- Locks: the new rows, in the order of the topics; waits for a plan that records the same topic.
-- Safe to run twice: an existing row of this pipeline becomes retired, or not, like the former one.
INSERT INTO kafka_ingest.served_topic AS s (
    target_schema, target_table, cluster_id, topic, pipeline, joined_by, retired_at
)
SELECT %(to_schema)s, %(to_table)s, %(to_cluster)s, topic, pipeline, joined_by, retired_at
FROM kafka_ingest.served_topic
WHERE pipeline = %(pipeline)s
    AND target_schema = %(from_schema)s
    AND target_table = %(from_table)s
    AND cluster_id = %(from_cluster)s
ORDER BY topic
ON CONFLICT ON CONSTRAINT one_pipeline_per_target_cluster_topic DO UPDATE
SET retired_at = excluded.retired_at
WHERE s.pipeline = excluded.pipeline
RETURNING topic;
