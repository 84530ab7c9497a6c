-- The newest committed batch has as many dead letters in each of its ranges as it counted. Only the newest: an older
-- range may have been written again by a reload.
-- Parameters: pipeline. Locks: none. Returns the ranges that differ.
WITH newest AS (
    SELECT batch_id
    FROM kafka_ingest.batch
    WHERE pipeline = %(pipeline)s AND state = 'committed'
    ORDER BY ordinal DESC
    LIMIT 1
)

SELECT
    r.batch_id, r.topic, r.generation, r.partition, r.range_start, r.range_end, r.dead_letters,
    count(d."offset") AS dead_letters_found
FROM kafka_ingest.batch_partition AS r
JOIN newest USING (batch_id)
LEFT JOIN kafka_ingest.dead_letter AS d
    ON d.pipeline = r.pipeline
    AND d.topic = r.topic
    AND d.generation = r.generation
    AND d.partition = r.partition
    AND d."offset" >= r.range_start
    AND d."offset" < r.range_end
GROUP BY r.batch_id, r.topic, r.generation, r.partition
HAVING count(d."offset") IS DISTINCT FROM r.dead_letters
ORDER BY r.topic, r.partition;
