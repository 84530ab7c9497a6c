-- Purpose: make the table of the newest staged change of each key: the fold of what the winners have staged.
-- Identifiers: staged_rows, staged_partial, staged_deletes; their metadata columns topic, generation, partition, offset_column;
--   keys_as (the key columns as k1, k2, ...), aliases (k1, k2, ...), order_value (what orders records beside offsets),
--   apart (the aliases; where offsets order the records also topic and partition, between which they tell nothing),
--   newest_first (the order of versions, the newest first).
-- Parameters: task and attempt of the winners as arrays.
-- Locks: a new temporary table. Safe to run twice: no; a transaction folds once, and the table goes with it.
-- A key that two partitions hold has two rows, which stops the fold: so it is found whatever its newest change is.
CREATE TEMPORARY TABLE kafka_ingest_newest ON COMMIT DROP AS
WITH winner AS MATERIALIZED (
    SELECT task, attempt FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
),

change AS (
    SELECT {keys_as}, {topic} AS topic, {generation} AS generation, {partition} AS partition,
        {offset_column} AS "offset", {order_value} AS order_value, false AS is_delete, false AS is_partial, ctid AS place
    FROM {staged_rows}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
    UNION ALL
    SELECT {keys}, {topic}, {generation}, {partition}, {offset_column}, {order_value}, false, true, ctid
    FROM {staged_partial}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
    UNION ALL
    SELECT {keys}, {topic}, {generation}, {partition}, {offset_column}, {order_value}, true, false, ctid
    FROM {staged_deletes}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
),

newest AS (
    SELECT DISTINCT ON ({apart}) *
    FROM change
    ORDER BY {apart}, {newest_first}
)

SELECT row_number() OVER () AS number, newest.*, count(*) OVER (PARTITION BY {aliases}) > 1 AS is_in_two_partitions
FROM newest
