-- Purpose: dead letters of a pipeline in the order of their offsets, those of the newest batch first. Of keys and values
--   only the beginning is read.
-- Parameters: pipeline (text), limit (integer), excerpt (integer: bytes of key and value), is_resolved (boolean, NULL
--   for both), batch_id (NULL: of all batches), reasons (NULL: all), generation (NULL: all), and topic, partition,
--   range_start, range_end (half-open) as arrays: one element a place, of which all but the topic may be NULL; without
--   any, all places.
-- Locks: none. Safe to run twice: it only reads.
SELECT dead_letter.topic,
       dead_letter.generation,
       dead_letter.partition,
       dead_letter."offset",
       dead_letter.record_time,
       dead_letter.reason,
       dead_letter.detail,
       dead_letter.batch_id::text AS batch_id,
       dead_letter.created_at,
       dead_letter.resolved_at,
       dead_letter.resolution,
       dead_letter.request_id,
       request.who AS resolved_by,
       request.why AS resolved_because,
       octet_length(dead_letter.key) AS key_bytes,
       octet_length(dead_letter.value) AS value_bytes,
       substr(dead_letter.key, 1, %(excerpt)s) AS key,
       substr(dead_letter.value, 1, %(excerpt)s) AS value,
       dead_letter.header_names,
       dead_letter.header_values
  FROM kafka_ingest.dead_letter AS dead_letter
  JOIN kafka_ingest.batch AS batch ON batch.batch_id = dead_letter.batch_id
  LEFT JOIN kafka_ingest.dead_letter_request AS request
    ON request.pipeline = dead_letter.pipeline
   AND request.request_id = dead_letter.request_id
 WHERE dead_letter.pipeline = %(pipeline)s
   AND (%(is_resolved)s::boolean IS NULL OR (dead_letter.resolved_at IS NOT NULL) = %(is_resolved)s::boolean)
   AND (%(batch_id)s::uuid IS NULL OR dead_letter.batch_id = %(batch_id)s::uuid)
   AND (%(generation)s::integer IS NULL OR dead_letter.generation = %(generation)s::integer)
   AND (%(reasons)s::text[] IS NULL OR dead_letter.reason = ANY (%(reasons)s::text[]))
   AND (
       cardinality(%(topic)s::text[]) = 0
       OR EXISTS (
           SELECT
             FROM unnest(
                 %(topic)s::text[], %(partition)s::integer[], %(range_start)s::bigint[], %(range_end)s::bigint[]
             ) AS place (topic, partition, range_start, range_end)
            WHERE dead_letter.topic = place.topic
              AND dead_letter.partition = coalesce(place.partition, dead_letter.partition)
              AND dead_letter."offset" >= coalesce(place.range_start, 0)
              AND (place.range_end IS NULL OR dead_letter."offset" < place.range_end)
       )
   )
 ORDER BY batch.ordinal DESC, dead_letter.topic, dead_letter.partition, dead_letter."offset"
 LIMIT %(limit)s
