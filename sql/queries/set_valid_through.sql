-- Record that partitions with nothing to read are complete up to a time, at which all their deletes were read, too.
-- Parameters: pipeline, and topic, partition, valid_through as arrays.
-- Locks: the position rows, locked in order before. Safe to run twice: sets the same values.
UPDATE kafka_ingest.committed_offset AS c
SET valid_through = known.valid_through,
    caught_up_at = greatest(c.caught_up_at, known.valid_through),
    updated_at = clock_timestamp()
FROM unnest(%(topic)s::text[], %(partition)s::integer[], %(valid_through)s::timestamptz[])
    AS known (topic, partition, valid_through)
WHERE c.pipeline = %(pipeline)s AND c.topic = known.topic AND c.partition = known.partition;
