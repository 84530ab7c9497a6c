-- Purpose: the newest batches of a pipeline, the newest first, with the phases of the attempt that loaded each.
-- Parameters: pipeline (text), batch_id (text: this one alone, NULL: all), limit (integer).
-- Locks: none. Safe to run twice: it only reads.
SELECT b.batch_id::text AS batch_id,
       b.pipeline,
       b.dag_id,
       b.run_id,
       b.task_group,
       b.map_index,
       b.kind,
       b.state,
       b.claim,
       b.target_schema || '.' || b.target_table AS target,
       b.planned_at,
       b.committed_at,
       -- What a batch has read is the sum of its counts (offsets_are_accounted_for).
       coalesce(
           b.rows + b.deletes + b.superseded + b.dead_letters + b.tombstones + b.filtered + b.invisible,
           hold.total_offsets
       ) AS offsets,
       b.rows,
       b.deletes,
       b.superseded,
       b.dead_letters,
       b.tombstones,
       b.filtered,
       b.invisible,
       b.record_time_min,
       b.record_time_max,
       b.valid_through,
       b.announced_at,
       b.left_out,
       b.warnings,
       load.session_seconds,
       load.stage_seconds,
       load.publish_seconds
  FROM kafka_ingest.batch AS b
  LEFT JOIN kafka_ingest.batch_hold AS hold ON hold.batch_id = b.batch_id
  LEFT JOIN LATERAL (
       SELECT a.session_seconds, a.stage_seconds, a.publish_seconds
         FROM kafka_ingest.attempt AS a
        WHERE a.batch_id = b.batch_id AND a.step = 'load' AND a.publish_seconds IS NOT NULL
        ORDER BY a.attempt_number DESC
        LIMIT 1) AS load ON true
 WHERE b.pipeline = %(pipeline)s
   AND (%(batch_id)s::uuid IS NULL OR b.batch_id = %(batch_id)s::uuid)
 ORDER BY b.ordinal DESC
 LIMIT %(limit)s
