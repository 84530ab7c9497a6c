-- Every range of a committed batch is published, and its counts add up to its span.
-- Parameters: pipeline, newest_batches (how far back to look). Locks: none. Returns the ranges that do not add up.
WITH newest AS (
    SELECT batch_id
    FROM kafka_ingest.batch
    WHERE pipeline = %(pipeline)s AND state = 'committed'
    ORDER BY ordinal DESC
    LIMIT %(newest_batches)s
)

SELECT
    r.batch_id, r.topic, r.generation, r.partition, r.range_start, r.range_end, r.rows, r.deletes, r.superseded,
    r.dead_letters, r.tombstones, r.filtered, r.invisible, r.published
FROM kafka_ingest.batch_partition AS r
JOIN newest USING (batch_id)
WHERE NOT r.published
    OR r.range_end - r.range_start
    IS DISTINCT FROM r.rows + r.deletes + r.superseded + r.dead_letters + r.tombstones + r.filtered + r.invisible
ORDER BY r.topic, r.partition, r.range_start;
