-- Purpose: the columns of the target, in their order: name, type as format_type spells it, NOT NULL, expression of the
--   default, kind of generated column ('' or s or v), kind of identity column ('' or a or d), the type below a domain
--   and the domains below that, whether the type (below its domains) is an enum or citext, whether the role may INSERT
--   into the column, the columns that the expression of a generated column reads, whether the role may UPDATE the column,
--   and its collation where that takes different texts for equal.
-- Parameters: relation (oid).
-- Locks: none. Safe to run twice: it only reads the catalog.
WITH RECURSIVE below AS (
    SELECT a.attnum, a.atttypid AS type, a.atttypmod AS modifier, 0 AS depth, false AS is_not_null
      FROM pg_catalog.pg_attribute AS a
     WHERE a.attrelid = %(relation)s
       AND a.attnum > 0
       AND NOT a.attisdropped
    UNION ALL
    SELECT b.attnum, t.typbasetype, t.typtypmod, b.depth + 1, t.typnotnull
      FROM below AS b
      JOIN pg_catalog.pg_type AS t ON t.oid = b.type
     WHERE t.typtype = 'd'
)
SELECT a.attname::text,
       format_type(a.atttypid, a.atttypmod),
       a.attnotnull OR (SELECT bool_or(b.is_not_null) FROM below AS b WHERE b.attnum = a.attnum),
       CASE WHEN a.attgenerated::text = '' THEN pg_get_expr(d.adbin, d.adrelid) END,
       a.attgenerated::text,
       a.attidentity::text,
       CASE WHEN base.depth > 0 THEN format_type(base.type, base.modifier) END,
       CASE WHEN t.typtype = 'e' THEN 'enum' WHEN t.typname = 'citext' THEN 'citext' END,
       has_column_privilege(a.attrelid, a.attnum, 'INSERT'),
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
                         AND p.objsubid = a.attnum))),
       has_column_privilege(a.attrelid, a.attnum, 'UPDATE'),
       CASE WHEN NOT l.collisdeterministic THEN format('%%I.%%I', n.nspname, l.collname) END
  FROM pg_catalog.pg_attribute AS a
  JOIN LATERAL (SELECT b.* FROM below AS b WHERE b.attnum = a.attnum ORDER BY b.depth DESC LIMIT 1) AS base ON true
  JOIN pg_catalog.pg_type AS t ON t.oid = base.type
  LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = a.attcollation -- that of its domain, where it has one
  LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = l.collnamespace
 WHERE a.attrelid = %(relation)s
   AND a.attnum > 0
   AND NOT a.attisdropped
 ORDER BY a.attnum
