-- Purpose: read rights that the connected role lacks on what the target itself uses when a row is written: sequences and
--   functions of defaults, functions of generated columns, CHECKs, domains and indexes, and types, which the staging
--   tables have, too. The column is that of a default, which only rows without a value need; else NULL.
--   Identity columns are left out: they need no right on their sequence (GRANT, PostgreSQL 18).
-- Parameters: relation (oid).
-- Locks: none. Safe to run twice: it only reads the catalog.
WITH expression AS (
    SELECT 'pg_catalog.pg_attrdef'::regclass AS class,
           d.oid AS object,
           CASE WHEN a.attgenerated::text = '' THEN a.attname::text END AS column_name,
           false AS is_written_out
      FROM pg_catalog.pg_attrdef AS d
      JOIN pg_catalog.pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
     WHERE d.adrelid = %(relation)s
    UNION ALL
    SELECT 'pg_catalog.pg_constraint'::regclass, k.oid, NULL, k.conrelid <> 0 -- staging looks CHECKs up by name
      FROM pg_catalog.pg_constraint AS k
     WHERE k.contype = 'c'
       AND (k.conrelid = %(relation)s
            OR k.contypid IN (SELECT a.atttypid FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = %(relation)s))
    UNION ALL
    SELECT 'pg_catalog.pg_class'::regclass, i.indexrelid, NULL, false
      FROM pg_catalog.pg_index AS i
     WHERE i.indrelid = %(relation)s
), used AS (
    SELECT e.column_name, e.is_written_out, p.refclassid AS class, p.refobjid AS object
      FROM expression AS e
      JOIN pg_catalog.pg_depend AS p ON p.classid = e.class AND p.objid = e.object
)
SELECT u.column_name, 'USAGE', format('SEQUENCE %%I.%%I', n.nspname, s.relname)
  FROM used AS u
  JOIN pg_catalog.pg_class AS s ON u.class = 'pg_catalog.pg_class'::regclass AND s.oid = u.object
  JOIN pg_catalog.pg_namespace AS n ON n.oid = s.relnamespace
 -- CASE, because the right may be asked of sequences only.
 WHERE CASE WHEN s.relkind = 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE, UPDATE') ELSE false END
UNION
SELECT u.column_name, 'EXECUTE', format('FUNCTION %%I.%%I(%%s)', n.nspname, f.proname, pg_get_function_identity_arguments(f.oid))
  FROM used AS u
  JOIN pg_catalog.pg_proc AS f ON u.class = 'pg_catalog.pg_proc'::regclass AND f.oid = u.object
  JOIN pg_catalog.pg_namespace AS n ON n.oid = f.pronamespace
 WHERE NOT has_function_privilege(f.oid, 'EXECUTE')
UNION
SELECT NULL, 'USAGE', format('SCHEMA %%I', n.nspname)
  FROM used AS u
  JOIN pg_catalog.pg_proc AS f ON u.class = 'pg_catalog.pg_proc'::regclass AND f.oid = u.object
  JOIN pg_catalog.pg_namespace AS n ON n.oid = f.pronamespace
 WHERE u.is_written_out
   AND NOT has_schema_privilege(n.oid, 'USAGE')
UNION
SELECT NULL, 'USAGE', format('TYPE %%I.%%I', n.nspname, t.typname)
  FROM pg_catalog.pg_attribute AS a
  JOIN pg_catalog.pg_type AS c ON c.oid = a.atttypid
  JOIN pg_catalog.pg_type AS t ON t.oid = CASE WHEN c.typcategory = 'A' THEN c.typelem ELSE c.oid END
  JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace
 WHERE a.attrelid = %(relation)s
   AND a.attnum > 0
   AND NOT a.attisdropped
   AND NOT has_type_privilege(t.oid, 'USAGE')
 ORDER BY 1 NULLS FIRST, 3
