-- Purpose: delete removed keys whose record was read again and is no delete of that key any more, as let_go_rows does
--   with rows.
-- Identifiers: w_key_hash, f_key_hash; stands_in, order_type.
-- Parameters: pipeline, first_keys; topic, generation, partition, replaced_from, replaced_to (half-open) as arrays.
-- Locks: the deleted entries. Safe to run twice: finds nothing the second time.
WITH old AS MATERIALIZED (
    SELECT
        r.key, r.key_hash, r.topic AS have_topic, r.generation AS have_generation, r.partition AS have_partition,
        r."offset" AS have_offset, r.order_value::{order_type} AS have_order_value
    FROM unnest(
        %(topic)s::text[], %(generation)s::integer[], %(partition)s::integer[], %(replaced_from)s::bigint[],
        %(replaced_to)s::bigint[]
    ) AS s (topic, generation, partition, replaced_from, replaced_to)
    JOIN kafka_ingest.removed_key AS r
        ON r.pipeline = %(pipeline)s
        AND r.topic = s.topic
        AND r.generation = s.generation
        AND r.partition = s.partition
        AND r."offset" >= s.replaced_from
        AND r."offset" < s.replaced_to
    JOIN pg_temp.kafka_ingest_read AS w
        ON (w.topic, w.generation, w.partition, w."offset") = (r.topic, r.generation, r.partition, r."offset")
    WHERE NOT (w.is_change AND {w_key_hash} = r.key_hash)
),

judged AS MATERIALIZED (
    SELECT o.key, o.key_hash, f.number, coalesce({stands_in}, false) AS stands_in
    FROM old AS o
    LEFT JOIN pg_temp.kafka_ingest_fold AS f ON {f_key_hash} = o.key_hash
),

deleted AS (
    DELETE FROM kafka_ingest.removed_key AS r
    USING judged AS j
    WHERE r.pipeline = %(pipeline)s AND r.key_hash = j.key_hash
    RETURNING j.number
),

forgotten AS (
    UPDATE pg_temp.kafka_ingest_fold AS f
    SET is_removed = false, have_topic = NULL, have_generation = NULL, have_partition = NULL, have_offset = NULL,
        have_order_value = NULL
    FROM deleted AS d
    WHERE f.number = d.number AND f.row_place IS NULL
)

SELECT
    count(*) FILTER (WHERE NOT stands_in) AS lost,
    (array_agg(key::text ORDER BY key) FILTER (WHERE NOT stands_in))[1 : %(first_keys)s] AS first_lost
FROM judged
