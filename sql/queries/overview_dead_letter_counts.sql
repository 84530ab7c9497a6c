-- Purpose: count the newest dead letters of a pipeline by reason and by what became of them.
-- Parameters: pipeline (text), is_resolved (boolean, NULL: both), most (integer: no more are counted).
-- Locks: none. Safe to run twice: it only reads.
SELECT d.reason,
       coalesce(d.resolution, 'unresolved') AS standing,
       count(*) AS records,
       min(d.created_at) AS first_at,
       max(d.created_at) AS last_at
  FROM (SELECT reason, resolution, created_at
          FROM kafka_ingest.dead_letter
         WHERE pipeline = %(pipeline)s
           AND (%(is_resolved)s::boolean IS NULL OR (resolved_at IS NOT NULL) = %(is_resolved)s::boolean)
         LIMIT %(most)s) AS d
 GROUP BY d.reason, coalesce(d.resolution, 'unresolved')
 ORDER BY records DESC, d.reason, standing
