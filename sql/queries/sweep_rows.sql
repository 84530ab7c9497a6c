-- Purpose: delete the rows that a rebuild did not read: the log does not hold their records, so their keys were deleted,
--   or retention took them.
-- Identifiers: target, its metadata columns topic, generation, partition, offset_column; t_keys_as, o_key, f_is_o.
-- Parameters: first_keys.
-- Locks: the deleted rows. Safe to run twice: finds nothing the second time. Reads the whole table.
WITH old AS MATERIALIZED (
    SELECT t.tableoid AS row_table, t.ctid AS row_place, {t_keys_as}
    FROM {target} AS t
    WHERE NOT EXISTS (
        SELECT
        FROM pg_temp.kafka_ingest_read AS w
        WHERE w.topic = t.{topic}
            AND w.generation = t.{generation}
            AND w.partition = t.{partition}
            AND w."offset" = t.{offset_column}
    )
),

judged AS MATERIALIZED (
    SELECT o.row_table, o.row_place, f.number, {o_key} AS key
    FROM old AS o
    LEFT JOIN pg_temp.kafka_ingest_fold AS f ON {f_is_o}
),

deleted AS (
    DELETE FROM {target} AS t
    USING judged AS j
    WHERE t.tableoid = j.row_table AND t.ctid = j.row_place
    RETURNING j.number
),

forgotten AS (
    UPDATE pg_temp.kafka_ingest_fold AS f
    SET row_table = NULL, row_place = NULL, have_topic = NULL, have_generation = NULL, have_partition = NULL,
        have_offset = NULL, have_order_value = NULL
    FROM deleted AS d
    WHERE f.number = d.number
)

SELECT
    count(*) AS found,
    (SELECT count(*) FROM deleted) AS gone,
    count(*) FILTER (WHERE number IS NULL) AS unread,
    (array_agg(key::text ORDER BY key) FILTER (WHERE number IS NULL))[1 : %(first_keys)s] AS first_unread
FROM judged
