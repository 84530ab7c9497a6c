-- Record that a pipeline serves topics into a table; return the topics that nobody served before.
-- Parameters: target_schema, target_table, cluster_id, pipeline, joined_by, topics (sorted, so that two plans lock in
-- one order). Locks: the new rows; waits for another plan that records the same topic.
-- Safe to run twice: an existing row stays as it is, and is not returned.
INSERT INTO kafka_ingest.served_topic (target_schema, target_table, cluster_id, topic, pipeline, joined_by)
SELECT %(target_schema)s, %(target_table)s, %(cluster_id)s, topic, %(pipeline)s, %(joined_by)s
FROM unnest(%(topics)s::text[]) AS topic
ON CONFLICT ON CONSTRAINT one_pipeline_per_target_cluster_topic DO NOTHING
RETURNING topic;
