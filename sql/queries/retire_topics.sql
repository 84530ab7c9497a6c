-- Retire topics of a pipeline in a table and on a cluster. The rows stay: nobody may load these topics there again.
-- Parameters: pipeline, target_schema, target_table, cluster_id, topics (NULL for all).
-- Locks: the rows of the topics. Safe to run twice: a topic that is retired keeps its time.
UPDATE kafka_ingest.served_topic
SET retired_at = clock_timestamp()
WHERE pipeline = %(pipeline)s
    AND target_schema = %(target_schema)s
    AND target_table = %(target_table)s
    AND cluster_id = %(cluster_id)s
    AND (%(topics)s::text[] IS NULL OR topic = ANY (%(topics)s::text[]))
    AND retired_at IS NULL;
