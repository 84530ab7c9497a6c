-- Purpose: the newest position changes of a pipeline, one row a request, the newest first.
-- Parameters: pipeline (text), limit (integer).
-- Locks: none. Safe to run twice: it only reads.
SELECT request_id,
       min(kind) AS kind,
       min(who) AS who,
       min(why) AS why,
       max(at) AS at,
       count(partition) AS partitions,
       count(*) FILTER (WHERE to_offset < from_offset) AS backward,
       count(*) FILTER (WHERE to_offset > from_offset) AS forward,
       coalesce(sum(to_offset - from_offset), 0)::bigint AS offsets,
       coalesce(sum((details -> 'given_up' ->> 1)::bigint - (details -> 'given_up' ->> 0)::bigint), 0)::bigint
           AS given_up
  FROM kafka_ingest.position_change
 WHERE pipeline = %(pipeline)s
 GROUP BY request_id
 ORDER BY max(change_number) DESC
 LIMIT %(limit)s
