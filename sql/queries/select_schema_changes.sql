-- Purpose: the columns that were added to a table for a pipeline, in the order in which they were added.
-- Parameters: pipeline, target_schema, target_table.
-- Locks: none. Safe to run twice: it only reads.
SELECT column_name AS name, column_type AS type, path, batch_id::text AS batch_id
  FROM kafka_ingest.schema_change
 WHERE pipeline = %(pipeline)s
   AND target_schema = %(target_schema)s
   AND target_table = %(target_table)s
 ORDER BY change_number;
