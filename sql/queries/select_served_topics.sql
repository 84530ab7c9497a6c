-- Read the topics that are served into a table, by whichever pipeline, and whether that holds the current state there.
-- Parameters: target_schema, target_table. Locks: none. Safe to run twice: reads only.
SELECT s.pipeline, s.cluster_id, s.topic, s.retired_at IS NOT NULL AS is_retired, p.upsert IS NOT NULL AS is_upsert
FROM kafka_ingest.served_topic AS s
INNER JOIN kafka_ingest.pipeline AS p ON p.pipeline = s.pipeline
WHERE s.target_schema = %(target_schema)s AND s.target_table = %(target_table)s
ORDER BY s.cluster_id, s.topic;
