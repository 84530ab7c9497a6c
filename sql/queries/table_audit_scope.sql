-- Read what an audit of the whole table begins with: how far the ledger goes, and how much was published.
-- Parameters: pipeline. Locks: none. Safe to run twice: reads only.
SELECT
    coalesce(sum(r.ranges) FILTER (WHERE r.is_here), 0)::bigint AS ranges,
    coalesce(sum(r.offsets) FILTER (WHERE r.is_here), 0)::bigint AS offsets,
    coalesce(sum(r.ranges) FILTER (WHERE NOT r.is_here), 0)::bigint AS elsewhere,
    coalesce(max(r.ordinal), 0) AS newest,
    (SELECT coalesce(max(change_number), 0) FROM kafka_ingest.position_change) AS newest_change
FROM kafka_ingest.pipeline AS p
LEFT JOIN LATERAL (
    SELECT
        b.ordinal,
        (b.target_schema, b.target_table) = (p.target_schema, p.target_table) AS is_here,
        count(*) AS ranges,
        sum(part.range_end - part.range_start) AS offsets
    FROM kafka_ingest.batch AS b
    JOIN kafka_ingest.batch_partition AS part USING (batch_id)
    WHERE b.pipeline = p.pipeline AND part.pipeline = p.pipeline AND part.published
    GROUP BY b.batch_id
) AS r ON true
WHERE p.pipeline = %(pipeline)s
GROUP BY p.pipeline;
