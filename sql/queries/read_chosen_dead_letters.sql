-- Read a page of the chosen dead letters with their bytes: at most so many records, and no more bytes than said unless
-- one record alone has more.
-- Parameters: pipeline, after (number of the last one read), bytes_before (bytes up to that one), records, bytes.
-- Locks: none (they are locked before). Safe to run twice: reads only.
SELECT
    c.number, c.bytes_up_to_it::bigint AS bytes_up_to_it, d.topic, d.generation, d.partition, d."offset",
    d.record_time_ms, d.record_time_type, d.key, d.value, d.header_names, d.header_values, d.detail
FROM pg_temp.kafka_ingest_chosen AS c
JOIN kafka_ingest.dead_letter AS d
    ON d.pipeline = %(pipeline)s
    AND d.topic = c.topic
    AND d.generation = c.generation
    AND d.partition = c.partition
    AND d."offset" = c."offset"
WHERE c.number > %(after)s
    AND c.number <= %(after)s + %(records)s
    AND (c.number = %(after)s + 1 OR c.bytes_up_to_it <= %(bytes_before)s + %(bytes)s)
ORDER BY c.number;
