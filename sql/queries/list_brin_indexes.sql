-- Purpose: the BRIN indexes of the pipelines' target tables, and of the partitions below them, as quoted names.
-- Parameters: none.
-- Locks: none. Safe to run twice: it only reads.
WITH RECURSIVE relation AS (
    SELECT c.oid
      FROM kafka_ingest.pipeline AS pipeline
      JOIN pg_catalog.pg_namespace AS n ON n.nspname = pipeline.target_schema
      JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = pipeline.target_table
     UNION
    SELECT i.inhrelid
      FROM relation
      JOIN pg_catalog.pg_inherits AS i ON i.inhparent = relation.oid
)
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS index_name
  FROM relation
  JOIN pg_catalog.pg_index AS x ON x.indrelid = relation.oid AND x.indisvalid
  JOIN pg_catalog.pg_class AS c ON c.oid = x.indexrelid AND c.relkind = 'i' -- not I: a partitioned index has no pages
  JOIN pg_catalog.pg_am AS a ON a.oid = c.relam AND a.amname = 'brin'
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 ORDER BY index_name
