-- Purpose: read sequences that the connected role may not use although defaults of the target's columns need them.
--   Identity columns are left out: they need no right on their sequence (GRANT, PostgreSQL 18).
-- Parameters: relation (oid).
-- Locks: none. Safe to run twice: it only reads the catalog.
SELECT a.attname::text, format('%%I.%%I', n.nspname, s.relname)
  FROM pg_catalog.pg_attrdef AS d
  JOIN pg_catalog.pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
  JOIN pg_catalog.pg_depend AS p
    ON p.classid = 'pg_catalog.pg_attrdef'::regclass
   AND p.objid = d.oid
   AND p.refclassid = 'pg_catalog.pg_class'::regclass
  JOIN pg_catalog.pg_class AS s ON s.oid = p.refobjid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = s.relnamespace
 WHERE d.adrelid = %(relation)s
   -- CASE, because the right may be asked of sequences only.
   AND CASE WHEN s.relkind = 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE, UPDATE') ELSE false END
 ORDER BY a.attnum, 2
