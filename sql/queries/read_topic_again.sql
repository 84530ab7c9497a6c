-- End the retirement of a pipeline's topic in a table and on a cluster: plans read it again, from its positions.
-- Parameters: pipeline, target_schema, target_table, cluster_id, topic.
-- Locks: the row of the topic (the pipeline row is locked before). Safe to run twice: the second time no row is
-- retired.
UPDATE kafka_ingest.served_topic
SET retired_at = NULL
WHERE pipeline = %(pipeline)s
    AND target_schema = %(target_schema)s
    AND target_table = %(target_table)s
    AND cluster_id = %(cluster_id)s
    AND topic = %(topic)s
    AND retired_at IS NOT NULL;
