-- Purpose: the staging tables of a batch up to a claim, oldest claim first.
-- Parameters: pattern (regular expression of the batch's table names with the claim as its group), claim.
-- Locks: none. Safe to run twice: it only reads the catalog.
SELECT c.relname::text
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = 'kafka_ingest_staging'
   AND c.relkind = 'r'
   AND substring(c.relname::text FROM %(pattern)s)::bigint <= %(claim)s
 ORDER BY substring(c.relname::text FROM %(pattern)s)::bigint, c.relname
