-- Purpose: list every staging table whose name holds a batch and a claim, with what the ledger says of the batch. One
--   statement, so that a table is never seen without the claim that was taken before it was made.
-- Parameters: none.
-- Locks: none. Safe to run twice: it only reads.
SELECT named.name,
       named.batch_id::text AS batch_id,
       named.claim,
       batch.state AS batch_state,
       coalesce(batch.claim, 0) AS batch_claim
  FROM (SELECT c.relname::text AS name,
               (regexp_match(c.relname::text, '^b([0-9a-f]{32})_c[0-9]+_'))[1]::uuid AS batch_id,
               (regexp_match(c.relname::text, '^b[0-9a-f]{32}_c([0-9]{1,9})_'))[1]::integer AS claim
          FROM pg_catalog.pg_class AS c
          JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
         WHERE n.nspname = 'kafka_ingest_staging' AND c.relkind = 'r') AS named
  LEFT JOIN kafka_ingest.batch AS batch ON batch.batch_id = named.batch_id
 WHERE named.claim IS NOT NULL
 ORDER BY named.name
