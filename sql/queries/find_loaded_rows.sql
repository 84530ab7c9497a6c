-- Purpose: read what a table holds according to the ledger: for each pipeline the newest batch that committed rows into
--   it, after the last time that they were given up (queries/given_up_at.sql). No row: nothing was loaded, so a missing
--   table may be created.
-- Parameters: schema, table (names without quotes), and pipeline, given_up_at as arrays.
-- Locks: none. Safe to run twice: it only reads.
SELECT p.pipeline, newest.batch_id, newest.rows, newest.committed_at
  FROM unnest(%(pipeline)s::text[], %(given_up_at)s::timestamptz[]) AS p (pipeline, given_up_at)
 CROSS JOIN LATERAL (
    SELECT b.batch_id::text, b.rows, b.committed_at
      FROM kafka_ingest.batch AS b
     WHERE b.pipeline = p.pipeline
       AND b.state = 'committed'
       AND b.rows > 0
       AND b.target_schema = %(schema)s
       AND b.target_table = %(table)s
       AND b.recorded_at > coalesce(p.given_up_at, '-infinity')
     ORDER BY b.ordinal DESC
     LIMIT 1
 ) AS newest
 ORDER BY p.pipeline
