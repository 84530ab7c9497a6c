-- Purpose: record the columns that a batch has added to its target, or found there.
-- Parameters: pipeline, target_schema, target_table, batch_id, claim, who; arrays, one element a column: name, type,
--   path (JSON), why.
-- Locks: the rows that it inserts (the batch row is locked before). Safe to run twice: the second is refused
--   (column_is_added_once).
INSERT INTO kafka_ingest.schema_change
    (pipeline, target_schema, target_table, column_name, column_type, path, batch_id, claim, who, why)
SELECT %(pipeline)s, %(target_schema)s, %(target_table)s, c.name, c.type, c.path, %(batch_id)s::uuid, %(claim)s,
       %(who)s, c.why
  FROM unnest(%(name)s::text[], %(type)s::text[], %(path)s::jsonb[], %(why)s::text[])
       WITH ORDINALITY AS c (name, type, path, why, place)
 ORDER BY c.place;
