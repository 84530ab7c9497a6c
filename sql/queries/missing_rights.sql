-- Purpose: read the rights that the connected role lacks on ledger, staging, database and, to create a table, on its
--   schema; one row for each right and thing, the tables of the ledger together. Rights on an existing target are read
--   with it.
-- Parameters: schema (the target's, without quotes), creates_table (boolean: the table is still to be created), tables
--   and rights (arrays: names of the ledger's tables, and with each a right that is needed on it).
-- Locks: none. Safe to run twice: it only reads the catalog.
WITH wanted AS (
    SELECT 1 AS place,
           'USAGE' AS privilege,
           'SCHEMA kafka_ingest' AS thing,
           has_schema_privilege(n.oid, 'USAGE') AS granted
      FROM pg_catalog.pg_namespace AS n
     WHERE n.nspname = 'kafka_ingest'
    UNION ALL
    SELECT 2, wanted.privilege, string_agg('kafka_ingest.' || c.relname::text, ', ' ORDER BY c.relname), false
      FROM unnest(%(tables)s::text[], %(rights)s::text[]) AS wanted (name, privilege)
      JOIN pg_catalog.pg_class AS c ON c.relname = wanted.name AND c.relnamespace = to_regnamespace('kafka_ingest')
     WHERE NOT has_table_privilege(c.oid, wanted.privilege)
     GROUP BY wanted.privilege
    UNION ALL
    SELECT 3, p.privilege, 'SCHEMA kafka_ingest_staging', has_schema_privilege(n.oid, p.privilege)
      FROM pg_catalog.pg_namespace AS n
     CROSS JOIN unnest(ARRAY['USAGE', 'CREATE']) AS p (privilege)
     WHERE n.nspname = 'kafka_ingest_staging'
    UNION ALL
    SELECT 4,
           'TEMPORARY',
           format('DATABASE %%I', current_database()),
           has_database_privilege(current_database(), 'TEMPORARY')
    UNION ALL
    SELECT 5, p.privilege, format('SCHEMA %%I', n.nspname), has_schema_privilege(n.oid, p.privilege)
      FROM pg_catalog.pg_namespace AS n
     CROSS JOIN unnest(ARRAY['USAGE', 'CREATE']) AS p (privilege)
     WHERE n.nspname = %(schema)s
       AND %(creates_table)s
    UNION ALL
    SELECT 6, 'CREATE', format('DATABASE %%I', current_database()), has_database_privilege(current_database(), 'CREATE')
     WHERE %(creates_table)s
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_namespace AS n WHERE n.nspname = %(schema)s)
)
SELECT w.privilege,
       w.thing,
       format('GRANT %%s ON %%s TO %%I;', w.privilege, w.thing, current_user) AS fix
  FROM wanted AS w
 WHERE NOT w.granted
 ORDER BY w.place, w.privilege
