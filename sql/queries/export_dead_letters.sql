-- Purpose: read a page of dead letters, whole, in the order of their identities: at most so many records, and no more
--   bytes than said unless one record alone has more.
-- Parameters: pipeline (text), after_topic, after_generation, after_partition, after_offset (identity of the last one
--   read; an empty topic and -1 before the first), records, bytes, is_resolved (boolean, NULL for both), batch_id (NULL:
--   of all batches), reasons (NULL: all), generation (NULL: all), and topic, partition, range_start, range_end
--   (half-open) as arrays: one element a place, of which all but the topic may be NULL; without any, all places.
-- Locks: none. Safe to run twice: it only reads.
WITH page AS MATERIALIZED (
    SELECT d.topic,
           d.generation,
           d.partition,
           d."offset",
           coalesce(octet_length(d.key), 0)::bigint + coalesce(octet_length(d.value), 0)
           + coalesce(pg_column_size(d.header_names), 0) + coalesce(pg_column_size(d.header_values), 0)
           + 64 * coalesce(cardinality(d.header_names), 0) AS size_bytes -- a header is an object, too (spark_jobs/records.py)
      FROM kafka_ingest.dead_letter AS d
     WHERE d.pipeline = %(pipeline)s
       AND (d.topic, d.generation, d.partition, d."offset")
           > (%(after_topic)s, %(after_generation)s, %(after_partition)s, %(after_offset)s)
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
     ORDER BY d.topic, d.generation, d.partition, d."offset"
     LIMIT %(records)s
),

sized AS (
    SELECT page.*, sum(size_bytes) OVER in_order AS bytes_up_to_it, row_number() OVER in_order AS number
      FROM page
    WINDOW in_order AS (ORDER BY topic, generation, partition, "offset")
)

SELECT d.topic, d.generation, d.partition, d."offset", d.record_time_ms, d.record_time_type, d.reason, d.detail,
       d.batch_id::text AS batch_id, d.created_at, d.resolved_at, d.resolution, d.request_id, d.key, d.value,
       d.header_names, d.header_values
  FROM sized AS s
  JOIN kafka_ingest.dead_letter AS d USING (topic, generation, partition, "offset")
 WHERE d.pipeline = %(pipeline)s
   AND (s.number = 1 OR s.bytes_up_to_it <= %(bytes)s)
 ORDER BY s.number
