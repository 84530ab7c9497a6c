-- Purpose: tell whether every key of the fold stands as it was written: with the row of its newest change, or without
--   one. For tables with triggers or rules, which can drop, move, double or alter rows.
-- Identifiers: target, its metadata columns topic, generation, partition, offset_column, batch_column; t_is_f, f_key;
--   applies, has_row (whether a change that applies leaves a row).
-- Parameters: batch_id, first_keys.
-- Locks: none. Safe to run twice: it only reads.
WITH compared AS (
    SELECT
        f.number, {f_key} AS key, {has_row} AS has_row, count(t.{topic}) AS rows,
        count(*) FILTER (
            WHERE t.{batch_column} = %(batch_id)s::uuid
                AND (t.{topic}, t.{generation}, t.{partition}, t.{offset_column})
                = (f.topic, f.generation, f.partition, f."offset")
        ) AS sound
    FROM pg_temp.kafka_ingest_fold AS f
    LEFT JOIN {target} AS t ON {t_is_f}
    WHERE {applies}
    GROUP BY f.number, key, has_row
)

SELECT
    count(*) AS wrong,
    (array_agg(key::text ORDER BY key))[1 : %(first_keys)s] AS first_wrong
FROM compared
WHERE rows <> CASE WHEN has_row THEN 1 ELSE 0 END OR sound <> rows
