-- Read the topics that are served into a table, by whichever pipeline.
-- Parameters: target_schema, target_table. Locks: none. Safe to run twice: reads only.
SELECT pipeline, cluster_id, topic, retired_at IS NOT NULL AS is_retired
FROM kafka_ingest.served_topic
WHERE target_schema = %(target_schema)s AND target_table = %(target_table)s
ORDER BY cluster_id, topic;
