-- Purpose: count the rows of a target that no record has written: what would replace or remove them cannot be told.
-- Identifiers: target, topic, generation, partition, offset_column.
-- Locks: none. Safe to run twice: it only reads.
SELECT count(*) AS rows
  FROM {target}
 WHERE {topic} IS NULL
    OR {generation} IS NULL
    OR {partition} IS NULL
    OR {offset_column} IS NULL
