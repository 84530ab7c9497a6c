-- Each dead letter of a replay that became a row has exactly one row. Only of the newest replay, until the next batch is
-- committed, and of the first 1,000, so that the check stays quick.
-- Identifiers: target, and its metadata columns topic, generation, partition, offset_column.
-- Parameters: pipeline, request_id (queries/select_replay_to_audit.sql). Locks: none. Returns the dead letters whose row
-- is missing or double.
WITH replayed AS MATERIALIZED (
    SELECT d.topic, d.generation, d.partition, d."offset"
    FROM kafka_ingest.dead_letter AS d
    WHERE d.pipeline = %(pipeline)s AND d.request_id = %(request_id)s AND d.resolution = 'replayed'
    LIMIT 1000
)

SELECT d.topic, d.generation, d.partition, d."offset", count(t.{offset_column}) AS rows_found
FROM replayed AS d
LEFT JOIN {target} AS t
    ON t.{topic} = d.topic
    AND t.{generation} = d.generation
    AND t.{partition} = d.partition
    AND t.{offset_column} = d."offset"
GROUP BY d.topic, d.generation, d.partition, d."offset"
HAVING count(t.{offset_column}) <> 1
ORDER BY d.topic, d.partition, d."offset";
