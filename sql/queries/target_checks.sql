-- Purpose: read the enforced CHECK constraints of the target, with the columns that they read. PostgreSQL 18 has some
--   that are not enforced: older servers lack the column conenforced, so it is read through jsonb.
-- Parameters: relation (oid).
-- Locks: none. Safe to run twice: it only reads the catalog.
SELECT k.conname::text,
       pg_get_expr(k.conbin, k.conrelid),
       ARRAY(SELECT a.attname::text
               FROM pg_catalog.pg_attribute AS a
              WHERE a.attrelid = k.conrelid
                AND a.attnum = ANY (k.conkey)
              ORDER BY a.attnum)
  FROM pg_catalog.pg_constraint AS k
 WHERE k.conrelid = %(relation)s
   AND k.contype = 'c'
   AND coalesce((to_jsonb(k) ->> 'conenforced')::boolean, true)
 ORDER BY k.conname
