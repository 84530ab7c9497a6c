-- Purpose: delete the removed keys whose delete a rebuild did not read.
-- Identifiers: f_key_hash.
-- Parameters: pipeline.
-- Locks: the deleted entries. Safe to run twice: finds nothing the second time. No row goes, so none is counted as unread.
WITH old AS MATERIALIZED (
    SELECT r.key_hash
    FROM kafka_ingest.removed_key AS r
    WHERE r.pipeline = %(pipeline)s
        AND NOT EXISTS (
            SELECT
            FROM pg_temp.kafka_ingest_read AS w
            WHERE (w.topic, w.generation, w.partition, w."offset") = (r.topic, r.generation, r.partition, r."offset")
        )
),

deleted AS (
    DELETE FROM kafka_ingest.removed_key AS r
    USING old AS o
    WHERE r.pipeline = %(pipeline)s AND r.key_hash = o.key_hash
),

forgotten AS (
    UPDATE pg_temp.kafka_ingest_fold AS f
    SET is_removed = false, have_topic = NULL, have_generation = NULL, have_partition = NULL, have_offset = NULL,
        have_order_value = NULL
    FROM old AS o
    WHERE {f_key_hash} = o.key_hash AND f.row_place IS NULL
)

SELECT count(*) AS found
FROM old
