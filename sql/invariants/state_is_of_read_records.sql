-- Every row of an upsert pipeline's table, and every removed key, has a version that was read: its record lies below
-- the end of what its topic partition was ever loaded to. Reads the whole table: for audits of the whole table.
-- Identifiers: target, its metadata columns topic, generation, partition, offset_column.
-- Parameters: pipeline. Locks: none. Returns the partitions with rows that have none, or one that nobody has read.
WITH standing AS (
    SELECT
        'row' AS what, {topic} AS topic, {generation} AS generation, {partition} AS partition,
        count(*) AS versions, max({offset_column}) AS greatest,
        count(*) FILTER (
            WHERE num_nulls({topic}, {generation}, {partition}, {offset_column}) > 0
        ) AS without_version
    FROM {target}
    GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'removed key', topic, generation, partition, count(*), max("offset"), 0
    FROM kafka_ingest.removed_key
    WHERE pipeline = %(pipeline)s
    GROUP BY 2, 3, 4
)

SELECT s.what, s.topic, s.generation, s.partition, s.versions, s.without_version, s.greatest, p.loaded_to
FROM standing AS s
LEFT JOIN kafka_ingest.committed_offset AS p
    ON p.pipeline = %(pipeline)s
    AND p.topic = s.topic
    AND p.partition = s.partition
WHERE s.without_version > 0
    OR s.generation > p.generation
    OR s.generation = p.generation AND s.greatest >= p.loaded_to
ORDER BY s.what, s.topic, s.generation, s.partition
