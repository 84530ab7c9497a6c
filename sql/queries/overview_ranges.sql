-- Purpose: the ranges of a batch, and what became of their offsets.
-- Parameters: batch_id (text).
-- Locks: none. Safe to run twice: it only reads.
SELECT topic,
       partition,
       generation,
       range_start,
       range_end,
       range_end - range_start AS offsets,
       published,
       rows,
       deletes,
       superseded,
       dead_letters,
       tombstones,
       filtered,
       invisible,
       record_time_min,
       record_time_max
  FROM kafka_ingest.batch_partition
 WHERE batch_id = %(batch_id)s::uuid
 ORDER BY topic, partition, generation
