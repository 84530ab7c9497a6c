-- Count the dead letters in ranges of offsets, by identity.
-- Parameters: pipeline, and topic, generation, partition, range_start, range_end as arrays.
-- Locks: none. Safe to run twice: reads only. Returns a row for each range, in their order.
SELECT count(d."offset") AS found
FROM unnest(
    %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(range_start)s::bigint[],
    %(range_end)s::bigint[]
) WITH ORDINALITY AS r (topic, generation, partition, range_start, range_end, place)
LEFT JOIN kafka_ingest.dead_letter AS d
    ON d.pipeline = %(pipeline)s
    AND d.topic = r.topic
    AND d.generation = r.generation
    AND d.partition = r.partition
    AND d."offset" >= r.range_start
    AND d."offset" < r.range_end
GROUP BY r.place
ORDER BY r.place;
