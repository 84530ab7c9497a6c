-- Purpose: delete the dead letters of the ranges whose records an upsert pipeline has read again. One that compaction
--   took stays; one that was discarded, or resolved by hand, stays, too, unless with_resolved; a replayed one is a
--   record like any other.
-- Parameters: pipeline, with_resolved; topic, generation, partition, replaced_from, replaced_to (half-open) as arrays.
-- Locks: the deleted dead letters (after batch and positions). Safe to run twice: finds nothing the second time.
DELETE FROM kafka_ingest.dead_letter AS d
USING unnest(
    %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(replaced_from)s::bigint[],
    %(replaced_to)s::bigint[]
) AS s (topic, generation, partition, replaced_from, replaced_to), pg_temp.kafka_ingest_read AS w
WHERE d.pipeline = %(pipeline)s
    AND d.topic = s.topic
    AND d.generation = s.generation
    AND d.partition = s.partition
    AND d."offset" >= s.replaced_from
    AND d."offset" < s.replaced_to
    AND (w.topic, w.generation, w.partition, w."offset") = (d.topic, d.generation, d.partition, d."offset")
    AND (
        %(with_resolved)s
        OR d.resolved_at IS NULL
        OR (d.request_id IS NOT NULL AND d.resolution <> 'discarded')
    )
