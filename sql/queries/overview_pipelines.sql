-- Purpose: where every pipeline of this database stands, one row each: position, lag and headroom by its newest
--   observation, the newest committed batch, the batch in the way, unresolved dead letters, the newest failed attempt.
-- Parameters: named (text[]: pipelines that have a row even before their first plan), only (text[]: these alone, NULL:
--   all), short_seconds (numeric: headroom below it is short), most_dead_letters (bigint: no more are counted).
-- Locks: none. Safe to run twice: it only reads.
-- Positions and observations are read once for all pipelines; everything else is a look into an index for each.
WITH pipelines AS MATERIALIZED (
    SELECT pipeline FROM kafka_ingest.pipeline
    WHERE %(only)s::text[] IS NULL OR pipeline = ANY (%(only)s::text[])
    UNION
    SELECT unnest(%(named)s::text[])
),

retired AS MATERIALIZED (
    SELECT s.pipeline, s.topic
    FROM kafka_ingest.served_topic AS s
    JOIN kafka_ingest.pipeline AS p USING (pipeline, target_schema, target_table, cluster_id)
    WHERE s.retired_at IS NOT NULL
),

newest_plans AS MATERIALIZED (
    SELECT o.pipeline, max(o.seen_at) AS seen_at
      FROM kafka_ingest.log_observation AS o
     WHERE %(only)s::text[] IS NULL OR o.pipeline = ANY (%(only)s::text[])
     GROUP BY o.pipeline
),

-- As protocol/log.py does it: newest, headrooms, Headroom.
logs AS (
    SELECT c.pipeline,
           count(*) AS partitions,
           CASE WHEN count(c.valid_through) = count(*) THEN min(c.valid_through) END AS valid_through,
           count(*) - count(c.valid_through) AS partitions_without_time,
           max(o.seen_at) AS seen_at,
           sum(greatest(0, o.end_offset - c.committed_offset))::bigint AS lag_offsets,
           count(*) FILTER (WHERE o.end_offset > c.committed_offset) AS partitions_behind,
           min(headroom.offsets) AS headroom_offsets,
           min(headroom.seconds) AS headroom_seconds,
           count(*) FILTER (WHERE headroom.offsets < 0) AS partitions_losing,
           count(*) FILTER (
               WHERE o.log_start_offset <> 0
                 AND headroom.offsets >= 0
                 AND o.high_watermark > c.committed_offset
                 AND headroom.seconds < %(short_seconds)s::double precision
           ) AS partitions_short,
           count(*) FILTER (
               WHERE o.end_offset <= c.committed_offset AND c.committed_offset < o.high_watermark
           ) AS partitions_stalled
      FROM kafka_ingest.committed_offset AS c
      LEFT JOIN newest_plans AS n ON n.pipeline = c.pipeline
      LEFT JOIN kafka_ingest.log_observation AS o
        ON o.pipeline = c.pipeline
       AND o.topic = c.topic
       AND o.partition = c.partition
       AND o.seen_at = n.seen_at
       AND (o.topic_id IS NULL OR c.topic_id IS NULL OR o.topic_id = c.topic_id)
     CROSS JOIN LATERAL (
           SELECT c.committed_offset - o.log_start_offset AS offsets,
                  CASE WHEN o.seen_at - o.rate_from_at >= interval '1 hour' AND o.log_start_offset <> o.rate_from_offset
                       THEN (c.committed_offset - o.log_start_offset)::double precision
                            * extract(epoch FROM o.seen_at - o.rate_from_at)::double precision
                            / (o.log_start_offset - o.rate_from_offset)
                  END AS seconds) AS headroom
     WHERE (%(only)s::text[] IS NULL OR c.pipeline = ANY (%(only)s::text[]))
       AND NOT EXISTS (SELECT FROM retired AS r WHERE r.pipeline = c.pipeline AND r.topic = c.topic)
     GROUP BY c.pipeline
)

SELECT pipelines.pipeline,
       bound.target_schema || '.' || bound.target_table AS target,
       ARRAY(SELECT s.topic
               FROM kafka_ingest.served_topic AS s
              WHERE s.pipeline = pipelines.pipeline AND s.retired_at IS NULL
              ORDER BY s.topic
              LIMIT 20) AS topics,
       latest.dag_id,
       logs.partitions,
       logs.valid_through,
       logs.partitions_without_time,
       logs.seen_at,
       logs.lag_offsets,
       logs.partitions_behind,
       logs.headroom_offsets,
       logs.headroom_seconds,
       logs.partitions_losing,
       logs.partitions_short,
       logs.partitions_stalled,
       newest.batch_id::text AS last_batch_id,
       newest.planned_at AS last_planned_at,
       newest.committed_at AS last_committed_at,
       newest.rows AS last_rows,
       newest.dead_letters AS last_dead_letters,
       newest.warnings,
       newest.left_out,
       outstanding.batch_id::text AS outstanding_batch_id,
       outstanding.dag_id AS outstanding_dag_id,
       outstanding.run_id AS outstanding_run_id,
       hold.hold_until,
       hold.step,
       hold.staged_offsets,
       hold.total_offsets,
       letters.unresolved AS unresolved_dead_letters,
       failed.dag_id AS failed_dag_id,
       failed.run_id AS failed_run_id,
       failed.task_id AS failed_task_id,
       failed.ended_at AS failed_at,
       failed.fault AS failed_fault,
       failed.message AS failed_message,
       clock_timestamp() AS now
  FROM pipelines
  LEFT JOIN kafka_ingest.pipeline AS bound ON bound.pipeline = pipelines.pipeline
  LEFT JOIN logs ON logs.pipeline = pipelines.pipeline
  LEFT JOIN LATERAL (
       SELECT b.dag_id
         FROM kafka_ingest.batch AS b
        WHERE b.pipeline = pipelines.pipeline
        ORDER BY b.ordinal DESC
        LIMIT 1) AS latest ON true
  LEFT JOIN LATERAL (
       SELECT b.*
         FROM kafka_ingest.batch AS b
        WHERE b.pipeline = pipelines.pipeline AND b.state = 'committed'
        ORDER BY b.ordinal DESC
        LIMIT 1) AS newest ON true
  LEFT JOIN kafka_ingest.batch AS outstanding
    ON outstanding.pipeline = pipelines.pipeline
   AND outstanding.state = 'planned'
  LEFT JOIN kafka_ingest.batch_hold AS hold ON hold.batch_id = outstanding.batch_id
 CROSS JOIN LATERAL (
       SELECT count(*) AS unresolved
         FROM (SELECT
                 FROM kafka_ingest.dead_letter AS d
                WHERE d.pipeline = pipelines.pipeline AND d.resolved_at IS NULL
                LIMIT %(most_dead_letters)s::bigint) AS counted) AS letters
  LEFT JOIN LATERAL (
       SELECT recent.*
         FROM (SELECT a.*
                 FROM kafka_ingest.attempt AS a
                WHERE a.pipeline = pipelines.pipeline
                ORDER BY a.attempt_number DESC
                LIMIT 20) AS recent
        WHERE recent.outcome = 'failed'
        ORDER BY recent.attempt_number DESC
        LIMIT 1) AS failed ON true
 ORDER BY pipelines.pipeline
