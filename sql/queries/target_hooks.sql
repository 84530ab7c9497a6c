-- Purpose: read what else acts when rows of the target are inserted, updated or deleted: its enabled triggers, those of its
--   partitions and inheritance children, and its rules. A trigger that partitions inherit from their parent is listed
--   once. Triggers of foreign keys and of replicas (session_replication_role) are left out.
-- Parameters: schema, table (names without quotes).
-- Locks: none. Safe to run twice: it only reads the catalog.
-- Bits of pg_trigger.tgtype: 1 row, 2 before, 4 insert, 8 delete, 16 update (catalog/pg_trigger.h, PostgreSQL 18).
WITH RECURSIVE family AS (
    SELECT c.oid
      FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE n.nspname = %(schema)s
       AND c.relname = %(table)s
    UNION
    SELECT i.inhrelid
      FROM family AS f
      JOIN pg_catalog.pg_inherits AS i ON i.inhparent = f.oid
)
SELECT 'trigger' AS kind,
       t.tgname::text AS name,
       format('%%I.%%I', n.nspname, c.relname) AS relation,
       t.tgtype & 4 <> 0 AS on_insert,
       t.tgtype & 8 <> 0 AS on_delete,
       t.tgtype & 3 = 3 AND t.tgtype & 20 <> 0 AS changes_rows,
       false AS is_instead,
       t.tgtype & 16 <> 0 AS on_update
  FROM family AS f
  JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = f.oid
  JOIN pg_catalog.pg_class AS c ON c.oid = f.oid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE NOT t.tgisinternal
   AND t.tgenabled IN ('O', 'A')
   AND t.tgtype & 28 <> 0
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS p WHERE p.oid = t.tgparentid AND p.tgenabled IN ('O', 'A'))
UNION ALL
SELECT 'rule',
       r.rulename::text,
       format('%%I.%%I', n.nspname, c.relname),
       r.ev_type = '3',
       r.ev_type = '4',
       false,
       r.is_instead,
       r.ev_type = '2'
  FROM pg_catalog.pg_rewrite AS r
  JOIN pg_catalog.pg_class AS c ON c.oid = r.ev_class
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = %(schema)s
   AND c.relname = %(table)s
   AND r.ev_enabled IN ('O', 'A')
   AND r.ev_type IN ('2', '3', '4') -- update, insert, delete
 ORDER BY kind, name, relation
