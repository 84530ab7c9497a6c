-- Purpose: read which record a row of the staging table holds.
-- Identifiers: staging, and its metadata columns topic, partition, offset_column. Parameters: place (ctid as text).
-- Locks: none. Safe to run twice: it only reads.
SELECT {topic}, {partition}, {offset_column}
  FROM {staging}
 WHERE ctid = %(place)s::tid
