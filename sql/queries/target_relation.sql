-- Purpose: read the relation that a pipeline writes to, and the rights of the connected role. No row: no such relation.
--   Row security hides nothing where, for each command, a permissive policy for the role says `true` and no restrictive
--   one says anything else; a policy without an expression lets nothing through (rowsecurity.c, PostgreSQL 18).
-- Parameters: schema, table (names without quotes).
-- Locks: none. Safe to run twice: it only reads the catalog.
WITH policy AS (
    SELECT p.polrelid,
           p.polcmd::text AS polcmd,
           p.polpermissive,
           pg_get_expr(p.polqual, p.polrelid) AS seen,
           coalesce(pg_get_expr(p.polwithcheck, p.polrelid), pg_get_expr(p.polqual, p.polrelid)) AS checked
      FROM pg_catalog.pg_policy AS p
     WHERE EXISTS (SELECT FROM unnest(p.polroles) AS r (role) WHERE r.role = 0 OR pg_has_role(r.role, 'USAGE'))
)
SELECT c.oid,
       c.relkind::text,
       c.relpersistence::text,
       row_security_active(c.oid) AND coalesce(hidden.commands && ARRAY['r', 'a', 'd'], false),
       current_user::text,
       current_database()::text,
       has_schema_privilege(n.oid, 'USAGE'),
       has_table_privilege(c.oid, 'SELECT'),
       has_table_privilege(c.oid, 'INSERT'),
       has_table_privilege(c.oid, 'DELETE'),
       has_database_privilege(current_database(), 'TEMPORARY'),
       coalesce(has_schema_privilege(s.oid, 'USAGE') AND has_schema_privilege(s.oid, 'CREATE'), true),
       has_table_privilege(c.oid, 'UPDATE'),
       row_security_active(c.oid) AND coalesce(hidden.commands && ARRAY['w'], false)
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_namespace AS s ON s.nspname = 'kafka_ingest_staging'
 CROSS JOIN LATERAL (
    SELECT array_agg(needed.command) AS commands
      -- SELECT, INSERT, DELETE, UPDATE (pg_policy.polcmd); INSERT is about new rows, UPDATE about old and new ones.
      FROM (VALUES ('r', false), ('a', true), ('d', false), ('w', false), ('w', true)) AS needed (command, is_new)
     WHERE NOT EXISTS (
               SELECT FROM policy AS p
                WHERE p.polrelid = c.oid AND p.polcmd IN ('*', needed.command)
                  AND p.polpermissive AND CASE WHEN needed.is_new THEN p.checked ELSE p.seen END = 'true'
           )
        OR EXISTS (
               SELECT FROM policy AS p
                WHERE p.polrelid = c.oid AND p.polcmd IN ('*', needed.command)
                  AND NOT p.polpermissive AND CASE WHEN needed.is_new THEN p.checked ELSE p.seen END <> 'true'
           )
 ) AS hidden
 WHERE n.nspname = %(schema)s
   AND c.relname = %(table)s
