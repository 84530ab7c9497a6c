-- Delete positions of partitions that the accepted log does not have, each only if it is still as it was seen. The
-- caller compares the number of rows with the number of positions.
-- Parameters: pipeline, and topic, partition, from_offset, from_generation and from_line as arrays.
-- Locks: the position rows, locked in order before. Safe to run twice: the second time finds no position.
DELETE FROM kafka_ingest.committed_offset AS c
USING unnest(
    %(topic)s::text[], %(partition)s::integer[], %(from_offset)s::bigint[], %(from_generation)s::integer[],
    %(from_line)s::integer[]
) AS gone (topic, partition, from_offset, from_generation, from_line)
WHERE c.pipeline = %(pipeline)s
    AND c.topic = gone.topic
    AND c.partition = gone.partition
    AND c.committed_offset = gone.from_offset
    AND c.generation = gone.from_generation
    AND c.line = gone.from_line;
