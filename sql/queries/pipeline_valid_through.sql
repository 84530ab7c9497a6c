-- Return the time up to which a pipeline is complete: the minimum over its partitions, NULL when one is unknown.
-- Partitions of topics that are retired in the table and on the cluster of the pipeline do not count.
-- Parameters: pipeline. Locks: none. Safe to run twice: reads only.
SELECT CASE WHEN count(c.valid_through) = count(*) THEN min(c.valid_through) END
FROM kafka_ingest.committed_offset AS c
WHERE c.pipeline = %(pipeline)s
    AND NOT EXISTS (
        SELECT
        FROM kafka_ingest.served_topic AS s
        JOIN kafka_ingest.pipeline AS p USING (pipeline, target_schema, target_table, cluster_id)
        WHERE s.pipeline = c.pipeline AND s.topic = c.topic AND s.retired_at IS NOT NULL
    );
