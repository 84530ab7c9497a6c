-- Read when a published plan last reached the end of each partition.
-- Parameters: pipeline. Locks: none. Safe to run twice: reads only.
SELECT topic, partition, caught_up_at
FROM kafka_ingest.committed_offset
WHERE pipeline = %(pipeline)s;
