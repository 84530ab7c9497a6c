-- Purpose: read the unlogged partitions and inheritance children of the target, at any depth. Its own persistence says
--   nothing about theirs.
-- Parameters: relation (oid).
-- Locks: none. Safe to run twice: it only reads the catalog.
WITH RECURSIVE family AS (
    SELECT i.inhrelid AS oid
      FROM pg_catalog.pg_inherits AS i
     WHERE i.inhparent = %(relation)s
    UNION
    SELECT i.inhrelid
      FROM family AS f
      JOIN pg_catalog.pg_inherits AS i ON i.inhparent = f.oid
)
SELECT format('%%I.%%I', n.nspname, c.relname)
  FROM family AS f
  JOIN pg_catalog.pg_class AS c ON c.oid = f.oid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.relpersistence = 'u'
 ORDER BY 1
