-- Purpose: the tables that inherit from the target without being partitions of it: no unique index of the target is
--   about their rows, which a SELECT from the target gives, too.
-- Parameters: relation (oid).
-- Locks: none. Safe to run twice: it only reads the catalog.
SELECT format('%%I.%%I', n.nspname, c.relname)
  FROM pg_catalog.pg_inherits AS i
  JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE i.inhparent = %(relation)s
   AND NOT c.relispartition
 ORDER BY 1
