-- Purpose: count staging tables of batches that were planned N days ago or earlier and are no longer planned.
-- Parameters: days (integer).
-- Locks: none. Safe to run twice: it only reads.
SELECT count(*) AS tables
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  JOIN kafka_ingest.batch AS batch
    ON batch.batch_id = (regexp_match(c.relname::text, '^b([0-9a-f]{32})_c[0-9]{1,9}_'))[1]::uuid
 WHERE n.nspname = 'kafka_ingest_staging'
   AND c.relkind = 'r'
   AND batch.state <> 'planned'
   AND batch.planned_at < clock_timestamp() - make_interval(days => %(days)s);
