-- Purpose: the newest batches of a pipeline, the newest first.
-- Parameters: pipeline (text), limit (integer).
-- Locks: none. Safe to run twice: it only reads.
SELECT batch.batch_id::text AS batch_id,
       batch.state,
       batch.kind,
       batch.dag_id,
       batch.run_id,
       batch.claim,
       batch.planned_at,
       batch.committed_at,
       (SELECT coalesce(sum(part.range_end - part.range_start), 0)::bigint
          FROM kafka_ingest.batch_partition AS part
         WHERE part.batch_id = batch.batch_id) AS offsets,
       batch.rows,
       batch.deletes,
       batch.superseded,
       batch.dead_letters,
       batch.tombstones,
       batch.filtered,
       batch.invisible,
       batch.record_time_min,
       batch.record_time_max,
       batch.valid_through,
       batch.announced_at,
       batch.left_out
  FROM kafka_ingest.batch AS batch
 WHERE batch.pipeline = %(pipeline)s
 ORDER BY batch.ordinal DESC
 LIMIT %(limit)s
