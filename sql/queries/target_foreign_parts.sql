-- Purpose: the target and its partitions and inheritance children, at any depth, that the role does not own: ALTER TABLE
--   ADD COLUMN alters all of them, and asks for the ownership of each (ATSimplePermissions in tablecmds.c, PostgreSQL 18).
-- Parameters: relation (oid).
-- Locks: none. Safe to run twice: it only reads the catalog.
WITH RECURSIVE family AS (
    SELECT %(relation)s::oid AS oid
    UNION
    SELECT i.inhrelid
      FROM family AS f
      JOIN pg_catalog.pg_inherits AS i ON i.inhparent = f.oid
)
SELECT format('%%I.%%I', n.nspname, c.relname), pg_get_userbyid(c.relowner)::text
  FROM family AS f
  JOIN pg_catalog.pg_class AS c ON c.oid = f.oid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE NOT pg_has_role(c.relowner, 'USAGE')
 ORDER BY c.oid <> %(relation)s, 1
