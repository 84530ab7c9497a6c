-- Mark dead letters of an upsert pipeline as resolved whose records are staged as changes of keys: as replayed where the
-- change is the newest of its key and was written, else as superseded, without a row.
-- Identifiers: staged_rows, staged_deletes with their metadata columns topic, generation, partition, offset_column;
-- applies.
-- Parameters: pipeline, request_id.
-- Locks: the dead letters (locked before). Safe to run twice: a resolved dead letter is not touched again.
-- Returns how many are replayed, and how many are superseded.
WITH change AS (
    SELECT {topic} AS topic, {generation} AS generation, {partition} AS partition, {offset_column} AS "offset"
    FROM {staged_rows}
    UNION ALL
    SELECT {topic}, {generation}, {partition}, {offset_column}
    FROM {staged_deletes}
),

resolved AS (
    UPDATE kafka_ingest.dead_letter AS d
    SET resolved_at = clock_timestamp(),
        resolution = CASE WHEN f.number IS NULL THEN 'superseded' ELSE 'replayed' END,
        request_id = %(request_id)s
    FROM change AS c
    LEFT JOIN pg_temp.kafka_ingest_fold AS f
        ON (f.topic, f.generation, f.partition, f."offset") = (c.topic, c.generation, c.partition, c."offset")
        AND {applies}
    WHERE d.pipeline = %(pipeline)s
        AND (d.topic, d.generation, d.partition, d."offset") = (c.topic, c.generation, c.partition, c."offset")
        AND d.resolved_at IS NULL
    RETURNING f.number IS NOT NULL AS is_replayed
)

SELECT
    count(*) FILTER (WHERE is_replayed) AS replayed,
    count(*) FILTER (WHERE NOT is_replayed) AS superseded
FROM resolved
