-- Purpose: the types of the staging table's columns, to choose how COPY writes them.
-- Identifiers: rows (the staging table's quoted name, a literal).
-- Locks: none that conflict with COPY. Safe to run twice: it only reads.
SELECT attname::text, format_type(atttypid, atttypmod)
  FROM pg_attribute
 WHERE attrelid = {rows}::regclass AND attnum > 0 AND NOT attisdropped
