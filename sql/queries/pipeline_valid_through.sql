-- Gives the time up to which a pipeline is complete: the minimum over its partitions, NULL when one is unknown.
-- Partitions of retired topics do not count.
-- Parameters: pipeline. Locks: none. Safe to run twice: reads only.
SELECT CASE WHEN count(c.valid_through) = count(*) THEN min(c.valid_through) END
FROM kafka_ingest.committed_offset AS c
WHERE c.pipeline = %(pipeline)s
    AND NOT EXISTS (
        SELECT
        FROM kafka_ingest.served_topic AS s
        WHERE s.pipeline = c.pipeline AND s.topic = c.topic AND s.cluster_id = c.cluster_id
            AND s.retired_at IS NOT NULL
    );
