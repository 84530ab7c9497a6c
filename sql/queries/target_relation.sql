-- Purpose: the relation that a pipeline writes to, and what the connected role may do with it. No row: no such relation.
-- Parameters: schema, table (names without quotes).
-- Locks: none. Safe to run twice: it only reads the catalog.
SELECT c.oid,
       c.relkind::text,
       c.relpersistence::text,
       row_security_active(c.oid),
       current_user::text,
       current_database()::text,
       has_schema_privilege(n.oid, 'USAGE'),
       has_table_privilege(c.oid, 'SELECT'),
       has_table_privilege(c.oid, 'INSERT'),
       has_table_privilege(c.oid, 'DELETE'),
       has_database_privilege(current_database(), 'TEMPORARY'),
       coalesce(has_schema_privilege(s.oid, 'USAGE') AND has_schema_privilege(s.oid, 'CREATE'), true)
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_namespace AS s ON s.nspname = 'kafka_ingest_staging'
 WHERE n.nspname = %(schema)s
   AND c.relname = %(table)s
