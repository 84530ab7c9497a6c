-- Purpose: count the keys of a pipeline's open dead letters: where the table holds the current state, their rows may be old.
-- Parameters: pipeline.
-- Locks: none. Safe to run twice: it only reads. Readers without payload may not run it.
SELECT count(DISTINCT key) AS keys
  FROM kafka_ingest.dead_letter
 WHERE pipeline = %(pipeline)s
   AND resolved_at IS NULL
