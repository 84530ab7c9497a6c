-- Purpose: delete rows whose record was read again and is no row of that key any more. Of each it tells whether the
--   batch holds what takes its place: where it does not, the older version that should come back is not known.
-- Identifiers: target, its metadata columns topic, generation, partition, offset_column; t_keys_as, t_is_w (the key
--   columns of target and read record are equal); f_is_o (the key columns of fold and old row are equal); stands_in
--   (whether a key of the fold takes the place of a row), t_order_value, o_key.
-- Parameters: first_keys; topic, generation, partition, replaced_from, replaced_to (half-open) as arrays.
-- Locks: the deleted rows. Safe to run twice: finds nothing the second time.
WITH span AS MATERIALIZED (
    SELECT topic, generation, partition, replaced_from, replaced_to
    FROM unnest(
        %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(replaced_from)s::bigint[],
        %(replaced_to)s::bigint[]
    ) AS span (topic, generation, partition, replaced_from, replaced_to)
),

old AS MATERIALIZED (
    SELECT
        t.tableoid AS row_table, t.ctid AS row_place, {t_keys_as}, t.{topic} AS have_topic,
        t.{generation} AS have_generation, t.{partition} AS have_partition, t.{offset_column} AS have_offset,
        {t_order_value} AS have_order_value
    FROM {target} AS t
    JOIN span AS s
        ON t.{topic} = s.topic
        AND t.{generation} = s.generation
        AND t.{partition} = s.partition
        AND t.{offset_column} >= s.replaced_from
        AND t.{offset_column} < s.replaced_to
    JOIN pg_temp.kafka_ingest_read AS w
        ON w.topic = t.{topic}
        AND w.generation = t.{generation}
        AND w.partition = t.{partition}
        AND w."offset" = t.{offset_column}
    WHERE NOT (w.is_change AND {t_is_w})
),

judged AS MATERIALIZED (
    SELECT o.row_table, o.row_place, f.number, {o_key} AS key, coalesce({stands_in}, false) AS stands_in
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
    count(*) FILTER (WHERE NOT stands_in) AS lost,
    (array_agg(key::text ORDER BY key) FILTER (WHERE NOT stands_in))[1 : %(first_keys)s] AS first_lost
FROM judged
