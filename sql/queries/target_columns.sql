-- Purpose: the columns of the target, in their order: name, type as format_type spells it, NOT NULL, expression of the
--   default, kind of generated column ('' or s or v), kind of identity column ('' or a or d), base type of a domain, the
--   columns that the expression of a generated column reads.
-- Parameters: relation (oid).
-- Locks: none. Safe to run twice: it only reads the catalog.
SELECT a.attname::text,
       format_type(a.atttypid, a.atttypmod),
       a.attnotnull OR t.typnotnull,
       CASE WHEN a.attgenerated::text = '' THEN pg_get_expr(d.adbin, d.adrelid) END,
       a.attgenerated::text,
       a.attidentity::text,
       CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod) END,
       ARRAY(SELECT DISTINCT r.attname::text
               FROM pg_catalog.pg_depend AS p
               JOIN pg_catalog.pg_attribute AS r ON r.attrelid = p.refobjid AND r.attnum = p.refobjsubid
              WHERE a.attgenerated::text <> ''
                AND p.refclassid = 'pg_catalog.pg_class'::regclass
                AND p.refobjid = a.attrelid
                AND p.refobjsubid <> a.attnum
                AND ((p.classid = 'pg_catalog.pg_attrdef'::regclass AND p.objid = d.oid)
                     OR (p.classid = 'pg_catalog.pg_class'::regclass -- PostgreSQL 14
                         AND p.objid = a.attrelid
                         AND p.objsubid = a.attnum)))
  FROM pg_catalog.pg_attribute AS a
  JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
  LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = %(relation)s
   AND a.attnum > 0
   AND NOT a.attisdropped
 ORDER BY a.attnum
