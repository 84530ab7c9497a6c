-- Purpose: make the table of the newest staged change of each key: the fold of what the winners have staged.
-- Identifiers: staged_rows, staged_deletes; their metadata columns topic, generation, partition, offset_column;
--   keys_as (the key columns as k1, k2, ...), aliases (k1, k2, ...), order_value (what orders records beside offsets),
--   newest_first (the order of versions, the newest first).
-- Parameters: task and attempt of the winners as arrays.
-- Locks: a new temporary table. Safe to run twice: no; a transaction folds once, and the table goes with it.
-- A key's changes are counted whole: a key in two partitions is found whatever the newest change is.
CREATE TEMPORARY TABLE kafka_ingest_newest ON COMMIT DROP AS
WITH winner AS MATERIALIZED (
    SELECT task, attempt FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
),

change AS (
    SELECT {keys_as}, {topic} AS topic, {generation} AS generation, {partition} AS partition,
        {offset_column} AS "offset", {order_value} AS order_value, false AS is_delete, ctid AS place
    FROM {staged_rows}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
    UNION ALL
    SELECT {keys_as}, {topic} AS topic, {generation} AS generation, {partition} AS partition,
        {offset_column} AS "offset", {order_value} AS order_value, true AS is_delete, ctid AS place
    FROM {staged_deletes}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
),

counted AS (
    SELECT
        change.*,
        row_number() OVER newest AS age,
        count(*) OVER whole AS changes,
        count(*) FILTER (WHERE is_delete) OVER whole AS deletes,
        (min(partition) OVER whole, min(topic) OVER whole)
        IS DISTINCT FROM (max(partition) OVER whole, max(topic) OVER whole) AS is_in_two_partitions
    FROM change
    WINDOW newest AS (PARTITION BY {aliases} ORDER BY {newest_first}), whole AS (PARTITION BY {aliases})
)

SELECT
    row_number() OVER () AS number, {aliases}, topic, generation, partition, "offset", order_value, is_delete, place,
    changes, deletes, is_in_two_partitions
FROM counted
WHERE age = 1
