-- Compare-and-set: move the positions of a batch, each only if it is still as planned. The caller compares the
-- number of rows with the number of ranges.
-- A range that moves nothing (a reload) leaves offset and epoch, even if it ends at the position: a newer epoch would
-- hide a truncation of the log below the offsets that were read again. The epoch belongs to the offset, so a new offset
-- never keeps an old epoch: Kafka would take the log for truncated.
-- Who reached the end of the log has read, or will find, every tombstone that was written before the plan; a first load
-- counts from its first plan.
-- A rebuild leaves no row of a record that it did not read: what lay above its end, in a log that was truncated, is gone.
-- Parameters: pipeline, batch_id, planned_at, is_rebuild, and one array for each column of the ranges and their outcome.
-- Locks: the position rows, locked in order before.
-- Safe to run twice: the second time no moved position is as planned.
UPDATE kafka_ingest.committed_offset AS c
SET committed_offset = p.committed_after,
    loaded_to = CASE WHEN %(is_rebuild)s THEN p.committed_after ELSE greatest(c.loaded_to, p.committed_after) END,
    leader_epoch = CASE WHEN p.range_end > p.committed_before THEN p.end_leader_epoch ELSE c.leader_epoch END,
    valid_through = coalesce(p.valid_through, c.valid_through),
    caught_up_at = CASE
        WHEN p.reaches_high_watermark OR c.caught_up_at IS NULL
        THEN greatest(c.caught_up_at, %(planned_at)s::timestamptz)
        ELSE c.caught_up_at
    END,
    batch_id = %(batch_id)s::uuid,
    updated_at = clock_timestamp()
FROM unnest(
    %(topic)s::text[], %(partition)s::integer[], %(generation)s::integer[], %(topic_id)s::text[], %(line)s::integer[],
    %(range_end)s::bigint[], %(committed_before)s::bigint[], %(committed_after)s::bigint[],
    %(end_leader_epoch)s::integer[], %(valid_through)s::timestamptz[], %(reaches_high_watermark)s::boolean[]
) AS p (
    topic, partition, generation, topic_id, line, range_end, committed_before, committed_after, end_leader_epoch,
    valid_through, reaches_high_watermark
)
WHERE c.pipeline = %(pipeline)s
    AND c.topic = p.topic
    AND c.partition = p.partition
    AND c.committed_offset = p.committed_before
    AND c.line = p.line
    AND c.generation = p.generation
    AND c.topic_id IS NOT DISTINCT FROM p.topic_id;
