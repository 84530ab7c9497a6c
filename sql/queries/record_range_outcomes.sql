-- Record what became of the offsets of each range.
-- Parameters: batch_id, and one array for each column.
-- Locks: the range rows (the batch row is locked before). Safe to run twice: a published range is not touched again.
UPDATE kafka_ingest.batch_partition AS r
SET published = true,
    rows = o.rows,
    deletes = o.deletes,
    superseded = o.superseded,
    dead_letters = o.dead_letters,
    tombstones = o.tombstones,
    filtered = o.filtered,
    invisible = o.invisible,
    record_time_min = o.record_time_min,
    record_time_max = o.record_time_max
FROM unnest(
    %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(rows)s::bigint[], %(deletes)s::bigint[],
    %(superseded)s::bigint[], %(dead_letters)s::bigint[], %(tombstones)s::bigint[], %(filtered)s::bigint[],
    %(invisible)s::bigint[], %(record_time_min)s::timestamptz[], %(record_time_max)s::timestamptz[]
) AS o (
    topic, generation, partition, rows, deletes, superseded, dead_letters, tombstones, filtered, invisible,
    record_time_min, record_time_max
)
WHERE r.batch_id = %(batch_id)s::uuid
    AND r.topic = o.topic
    AND r.generation = o.generation
    AND r.partition = o.partition
    AND NOT r.published;
