-- Purpose: move the rows of the chunk table without a violation into the staging table.
-- Identifiers: rows (the staging table), columns, offset (metadata column); refused (array of offsets, a literal: the
--   names may hold a percent sign, which parameters would need doubled).
-- Locks: ROW EXCLUSIVE on the staging table. Not to run twice within a task attempt: it would add the rows again.
INSERT INTO {rows} ({columns})
SELECT {columns}
  FROM pg_temp.kafka_ingest_chunk
 WHERE {offset} <> ALL ({refused}::bigint[])
