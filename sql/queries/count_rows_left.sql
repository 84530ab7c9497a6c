-- Purpose: count rows that are still there although a DELETE of ranges should have deleted them. For tables with
--   triggers or rules, which can keep rows or put them back. Rows of dead letters that were resolved by hand stay,
--   unless with_resolved.
-- Identifiers: target, and its metadata columns topic, generation, partition, offset_column.
-- Parameters: pipeline, with_resolved; topic, generation, partition, replaced_from, replaced_to (half-open) as arrays.
-- Locks: none. Safe to run twice: it only reads.
SELECT count(*) AS found,
       min(format('%%s[%%s] offset %%s', s.topic, s.partition, t.{offset_column})) AS example
  FROM {target} AS t
  JOIN unnest(
           %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(replaced_from)s::bigint[],
           %(replaced_to)s::bigint[]
       ) AS s (topic, generation, partition, replaced_from, replaced_to)
    ON t.{topic} = s.topic
   AND t.{generation} = s.generation
   AND t.{partition} = s.partition
   AND t.{offset_column} >= s.replaced_from
   AND t.{offset_column} < s.replaced_to
 WHERE %(with_resolved)s
    OR NOT EXISTS (
           SELECT
             FROM kafka_ingest.dead_letter AS d
            WHERE d.pipeline = %(pipeline)s
              AND (d.topic, d.generation, d.partition, d."offset")
                  = (s.topic, s.generation, s.partition, t.{offset_column})
              AND d.resolved_at IS NOT NULL
              AND (d.request_id IS NULL OR d.resolution = 'discarded')
       )
