-- Purpose: count the dead letters of a pipeline by reason and by what became of them, the most frequent first.
-- Parameters: pipeline (text), is_resolved (boolean, NULL for both), batch_id (NULL: of all batches), reasons (NULL:
--   all), generation (NULL: all), and topic, partition, range_start, range_end (half-open) as arrays: one element a
--   place, of which all but the topic may be NULL; without any, all places.
-- Locks: none. Safe to run twice: it only reads.
SELECT d.reason,
       coalesce(d.resolution, 'unresolved') AS standing,
       count(*) AS records,
       min(d.created_at) AS first_at,
       max(d.created_at) AS last_at
  FROM kafka_ingest.dead_letter AS d
 WHERE d.pipeline = %(pipeline)s
   AND (%(is_resolved)s::boolean IS NULL OR (d.resolved_at IS NOT NULL) = %(is_resolved)s::boolean)
   AND (%(batch_id)s::uuid IS NULL OR d.batch_id = %(batch_id)s::uuid)
   AND (%(generation)s::integer IS NULL OR d.generation = %(generation)s::integer)
   AND (%(reasons)s::text[] IS NULL OR d.reason = ANY (%(reasons)s::text[]))
   AND (
       cardinality(%(topic)s::text[]) = 0
       OR EXISTS (
           SELECT
             FROM unnest(
                 %(topic)s::text[], %(partition)s::integer[], %(range_start)s::bigint[], %(range_end)s::bigint[]
             ) AS place (topic, partition, range_start, range_end)
            WHERE d.topic = place.topic
              AND d.partition = coalesce(place.partition, d.partition)
              AND d."offset" >= coalesce(place.range_start, 0)
              AND (place.range_end IS NULL OR d."offset" < place.range_end)
       )
   )
 GROUP BY d.reason, coalesce(d.resolution, 'unresolved')
 ORDER BY records DESC, d.reason, standing
