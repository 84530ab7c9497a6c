-- Purpose: a page of a pipeline's dead letters, the newest first, without their payload.
-- Parameters: pipeline (text), is_resolved (boolean, NULL: both), reason (text, NULL: all), before_at (timestamptz, NULL:
--   from the newest on), before_topic, before_generation, before_partition, before_offset (identity of the last one of
--   the page before), limit (integer).
-- Locks: none. Safe to run twice: it only reads.
-- For unresolved ones this walks down the index unresolved_dead_letters.
SELECT d.topic,
       d.generation,
       d.partition,
       d."offset",
       d.record_time,
       d.reason,
       d.detail,
       d.batch_id::text AS batch_id,
       d.created_at,
       d.resolved_at,
       d.resolution,
       d.request_id,
       octet_length(d.key) AS key_bytes,
       octet_length(d.value) AS value_bytes
  FROM kafka_ingest.dead_letter AS d
 WHERE d.pipeline = %(pipeline)s
   AND (%(is_resolved)s::boolean IS NULL OR (d.resolved_at IS NOT NULL) = %(is_resolved)s::boolean)
   AND (%(reason)s::text IS NULL OR d.reason = %(reason)s::text)
   AND (%(before_at)s::timestamptz IS NULL
        OR d.created_at < %(before_at)s::timestamptz
        OR (d.created_at = %(before_at)s::timestamptz
            AND (d.topic, d.generation, d.partition, d."offset")
                > (%(before_topic)s, %(before_generation)s, %(before_partition)s, %(before_offset)s)))
 ORDER BY d.created_at DESC, d.topic, d.generation, d.partition, d."offset"
 LIMIT %(limit)s
