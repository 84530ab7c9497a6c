-- Purpose: make the table of all records that the winners have read, for a batch that reads again what was loaded: what was
--   loaded of a record that is none of its key any more, or is not there, must go.
-- Identifiers: staged_rows, staged_partial, staged_deletes; their metadata columns topic, generation, partition,
--   offset_column; keys_as (the key columns as k1, k2, ...), no_keys (a NULL for each); staged_dead_letters,
--   staged_counted.
-- Parameters: task and attempt of the winners as arrays.
-- Locks: a new temporary table. Safe to run twice: no; a transaction folds once, and the table goes with it.
CREATE TEMPORARY TABLE kafka_ingest_read ON COMMIT DROP AS
WITH winner AS MATERIALIZED (
    SELECT task, attempt FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
)

SELECT
    {keys_as}, {topic} AS topic, {generation} AS generation, {partition} AS partition, {offset_column} AS "offset",
    true AS is_change, true AS is_put
FROM {staged_rows}
WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
UNION ALL
SELECT {keys_as}, {topic}, {generation}, {partition}, {offset_column}, true, true
FROM {staged_partial}
WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
UNION ALL
SELECT {keys_as}, {topic}, {generation}, {partition}, {offset_column}, true, false
FROM {staged_deletes}
WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
UNION ALL
SELECT {no_keys}, topic, generation, partition, "offset", false, false
FROM {staged_dead_letters}
WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
UNION ALL
SELECT {no_keys}, topic, generation, partition, "offset", false, false
FROM {staged_counted}
WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
