-- Count the dead letters that stay in ranges that are read again: discarded, or resolved by hand.
-- Parameters: pipeline, and topic, generation, partition, replaced_from, replaced_to (half-open) as arrays.
-- Locks: none. Safe to run twice: reads only.
SELECT count(*) AS resolved
FROM unnest(
    %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(replaced_from)s::bigint[],
    %(replaced_to)s::bigint[]
) AS span (topic, generation, partition, replaced_from, replaced_to)
JOIN kafka_ingest.dead_letter AS d
    ON d.pipeline = %(pipeline)s
    AND d.topic = span.topic
    AND d.generation = span.generation
    AND d.partition = span.partition
    AND d."offset" >= span.replaced_from
    AND d."offset" < span.replaced_to
WHERE d.resolved_at IS NOT NULL
    AND (d.request_id IS NULL OR d.resolution = 'discarded');
