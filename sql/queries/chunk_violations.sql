-- Purpose: the rows of the chunk table that the target's NOT NULLs and CHECKs would refuse, with one boolean a
--   constraint. Within a chunk, which is of one partition, the offset identifies a row.
-- Identifiers: offset (metadata column); constraints (boolean expressions that are true where a constraint is violated).
-- Locks: none. Safe to run twice: it only reads.
SELECT {offset}, ARRAY[{constraints}]
  FROM pg_temp.kafka_ingest_chunk
 WHERE true IN ({constraints})
 ORDER BY {offset}
