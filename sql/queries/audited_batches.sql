-- Read what an audit checks: the newest committed batches, the ranges of the newest one, and how many other ranges a
-- pipeline has published.
-- Parameters: pipeline, newest_batches (how many). Locks: none. Safe to run twice: reads only.
WITH newest AS (
    SELECT batch_id, ordinal, committed_at
    FROM kafka_ingest.batch
    WHERE pipeline = %(pipeline)s AND state = 'committed'
    ORDER BY ordinal DESC
    LIMIT %(newest_batches)s
),

counted AS (
    SELECT count(*) AS ranges
    FROM kafka_ingest.batch_partition
    WHERE published AND batch_id = (SELECT batch_id FROM newest ORDER BY ordinal DESC LIMIT 1)
)

SELECT
    (SELECT count(*) FROM newest) AS batches,
    (SELECT batch_id::text FROM newest ORDER BY ordinal LIMIT 1) AS oldest,
    (SELECT batch_id::text FROM newest ORDER BY ordinal DESC LIMIT 1) AS newest,
    counted.ranges,
    (SELECT count(*) FROM kafka_ingest.batch_partition WHERE pipeline = %(pipeline)s AND published)
    - counted.ranges AS not_counted
FROM counted;
