-- Purpose: the indexes of the target, by name: whether each is unique, its key columns in order (a key that is an
--   expression is left out of the list), the number of its keys, the columns that it compares by another collation than
--   their own, those by another operator class than the default of their type, its name, its keys as they are defined,
--   the constraint that it belongs to, whether it is valid, has a condition, refuses a second row at once (is not
--   deferrable), and its access method.
-- Parameters: relation (oid).
-- Locks: none. Safe to run twice: it only reads the catalog.
WITH member AS (
    SELECT i.indexrelid,
           k.place,
           a.attname::text AS name,
           i.indcollation[(k.place - 1)::integer] <> a.attcollation AS has_other_collation,
           -- varchar and enums have no class of their own (GetDefaultOpClass in indexcmds.c, PostgreSQL 18).
           NOT o.opcdefault
           OR o.opcintype <> CASE
               WHEN b.type = 'varchar'::regtype THEN 'text'::regtype
               WHEN b.kind = 'e' THEN 'anyenum'::regtype
               ELSE b.type
           END AS has_other_operators
      FROM pg_catalog.pg_index AS i
     CROSS JOIN unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
      JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
      JOIN pg_catalog.pg_opclass AS o ON o.oid = i.indclass[(k.place - 1)::integer]
     CROSS JOIN LATERAL (
        WITH RECURSIVE below AS (
            SELECT a.atttypid AS type
            UNION
            SELECT t.typbasetype
              FROM below
              JOIN pg_catalog.pg_type AS t ON t.oid = below.type
             WHERE t.typtype = 'd'
        )
        SELECT below.type, t.typtype AS kind
          FROM below
          JOIN pg_catalog.pg_type AS t ON t.oid = below.type
         WHERE t.typtype <> 'd'
     ) AS b
     WHERE i.indrelid = %(relation)s
       AND k.place <= i.indnkeyatts
)
SELECT i.indisunique,
       ARRAY(SELECT m.name FROM member AS m WHERE m.indexrelid = i.indexrelid ORDER BY m.place),
       i.indnkeyatts,
       ARRAY(SELECT m.name FROM member AS m
              WHERE m.indexrelid = i.indexrelid AND m.has_other_collation ORDER BY m.place),
       ARRAY(SELECT m.name FROM member AS m
              WHERE m.indexrelid = i.indexrelid AND m.has_other_operators ORDER BY m.place),
       format('%%I.%%I', n.nspname, c.relname),
       (SELECT string_agg(pg_get_indexdef(i.indexrelid, k, true), ', ' ORDER BY k)
          FROM generate_series(1, i.indnkeyatts) AS k),
       (SELECT k.conname::text FROM pg_catalog.pg_constraint AS k
         WHERE k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u')),
       i.indisvalid,
       i.indpred IS NOT NULL,
       i.indimmediate,
       h.amname::text
  FROM pg_catalog.pg_index AS i
  JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_am AS h ON h.oid = c.relam
 WHERE i.indrelid = %(relation)s
 ORDER BY c.relname, n.nspname
