-- The counts of a committed batch are the sums over its ranges.
-- Parameters: pipeline, newest_batches (how far back to look). Locks: none. Returns the batches that differ.
WITH newest AS (
    SELECT batch_id, rows, deletes, superseded, dead_letters, tombstones, filtered, invisible
    FROM kafka_ingest.batch
    WHERE pipeline = %(pipeline)s AND state = 'committed'
    ORDER BY ordinal DESC
    LIMIT %(newest_batches)s
),

summed AS (
    SELECT
        r.batch_id,
        sum(r.rows) AS rows,
        sum(r.deletes) AS deletes,
        sum(r.superseded) AS superseded,
        sum(r.dead_letters) AS dead_letters,
        sum(r.tombstones) AS tombstones,
        sum(r.filtered) AS filtered,
        sum(r.invisible) AS invisible
    FROM kafka_ingest.batch_partition AS r
    JOIN newest USING (batch_id)
    GROUP BY r.batch_id
)

SELECT
    b.batch_id, b.rows, s.rows AS rows_of_ranges, b.deletes, s.deletes AS deletes_of_ranges,
    b.superseded, s.superseded AS superseded_of_ranges, b.dead_letters, s.dead_letters AS dead_letters_of_ranges,
    b.tombstones, s.tombstones AS tombstones_of_ranges, b.filtered, s.filtered AS filtered_of_ranges,
    b.invisible, s.invisible AS invisible_of_ranges
FROM newest AS b
LEFT JOIN summed AS s USING (batch_id)
WHERE (b.rows, b.deletes, b.superseded, b.dead_letters, b.tombstones, b.filtered, b.invisible)
    IS DISTINCT FROM (
        coalesce(s.rows, 0), coalesce(s.deletes, 0), coalesce(s.superseded, 0), coalesce(s.dead_letters, 0),
        coalesce(s.tombstones, 0), coalesce(s.filtered, 0), coalesce(s.invisible, 0)
    );
