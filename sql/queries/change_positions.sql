-- Compare-and-set: put positions where a position change wants them, each only if it is still as it was seen. The
-- caller compares the number of rows with the number of positions. The batch that last published a position is
-- forgotten: it no longer explains the position.
-- Parameters: pipeline, one array for each column of the new positions, and from_offset, from_generation, from_line and
-- from_topic_id as arrays.
-- Locks: the position rows, locked in order before. Safe to run twice: the second time no position is as seen.
UPDATE kafka_ingest.committed_offset AS c
SET generation = p.generation,
    topic_id = p.topic_id,
    cluster_id = p.cluster_id,
    committed_offset = p.committed_offset,
    loaded_to = p.loaded_to,
    line = p.line,
    leader_epoch = p.leader_epoch,
    valid_through = p.valid_through,
    batch_id = NULL,
    updated_at = clock_timestamp()
FROM unnest(
    %(topic)s::text[], %(partition)s::integer[], %(generation)s::integer[], %(topic_id)s::text[],
    %(cluster_id)s::text[], %(committed_offset)s::bigint[], %(loaded_to)s::bigint[], %(line)s::integer[],
    %(leader_epoch)s::integer[], %(valid_through)s::timestamptz[], %(from_offset)s::bigint[],
    %(from_generation)s::integer[], %(from_line)s::integer[], %(from_topic_id)s::text[]
) AS p (
    topic, partition, generation, topic_id, cluster_id, committed_offset, loaded_to, line, leader_epoch, valid_through,
    from_offset, from_generation, from_line, from_topic_id
)
WHERE c.pipeline = %(pipeline)s
    AND c.topic = p.topic
    AND c.partition = p.partition
    AND c.committed_offset = p.from_offset
    AND c.generation = p.from_generation
    AND c.line = p.from_line
    AND c.topic_id IS NOT DISTINCT FROM p.from_topic_id;
