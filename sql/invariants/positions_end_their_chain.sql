-- Every position is the end of the newest range of its line, or where a position change put it.
-- Parameters: pipeline. Locks: none. Returns the positions that are elsewhere.
SELECT c.topic, c.partition, c.generation, c.line, c.committed_offset, link.chain_end
FROM kafka_ingest.committed_offset AS c
CROSS JOIN LATERAL (
    SELECT greatest(
        (
            SELECT max(r.committed_after)
            FROM kafka_ingest.batch_partition AS r
            WHERE r.published
                AND r.committed_after > r.committed_before
                AND r.pipeline = c.pipeline
                AND r.topic = c.topic
                AND r.generation = c.generation
                AND r.partition = c.partition
                AND r.line = c.line
        ),
        (
            SELECT max(change.to_offset)
            FROM kafka_ingest.position_change AS change
            WHERE change.pipeline = c.pipeline
                AND change.topic = c.topic
                AND change.partition = c.partition
                AND change.to_generation = c.generation
                AND change.to_line = c.line
        )
    ) AS chain_end
) AS link
WHERE c.pipeline = %(pipeline)s AND c.committed_offset IS DISTINCT FROM link.chain_end
ORDER BY c.topic, c.partition;
