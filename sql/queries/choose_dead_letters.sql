-- Choose the unresolved dead letters that a request is about, and lock them: numbered in the order of their offsets,
-- with the bytes of all before, so that any number of them is read in pages of bounded size.
-- Parameters: pipeline, batch_id (NULL: of all batches), reasons (NULL: all), generation (NULL: all), most (how many;
-- NULL: all), and topic, partition, range_start, range_end (half-open) as arrays: one element a place, of which all but
-- the topic may be NULL; without any, all places.
-- Locks: the dead letters (after the pipeline). Once a transaction: the table is dropped at its end.
CREATE TEMPORARY TABLE kafka_ingest_chosen ON COMMIT DROP AS
WITH locked AS MATERIALIZED (
    SELECT
        d.topic, d.generation, d.partition, d."offset", d.batch_id, d.reason,
        coalesce(octet_length(d.key), 0)::bigint + coalesce(octet_length(d.value), 0)
        + coalesce(pg_column_size(d.header_names), 0) + coalesce(pg_column_size(d.header_values), 0)
        + 64 * coalesce(cardinality(d.header_names), 0) AS size_bytes -- a header is an object, too (spark_jobs/records.py)
    FROM kafka_ingest.dead_letter AS d
    WHERE d.pipeline = %(pipeline)s
        AND d.resolved_at IS NULL
        AND (%(batch_id)s::uuid IS NULL OR d.batch_id = %(batch_id)s::uuid)
        AND (%(generation)s::integer IS NULL OR d.generation = %(generation)s::integer)
        AND (%(reasons)s::text[] IS NULL OR d.reason = ANY (%(reasons)s::text[]))
        AND (
            cardinality(%(topic)s::text[]) = 0
            OR EXISTS (
                SELECT
                FROM unnest(
                    %(topic)s::text[], %(partition)s::integer[], %(range_start)s::bigint[], %(range_end)s::bigint[]
                ) AS place (topic, partition, range_start, range_end)
                WHERE d.topic = place.topic
                    AND d.partition = coalesce(place.partition, d.partition)
                    AND d."offset" >= coalesce(place.range_start, 0)
                    AND (place.range_end IS NULL OR d."offset" < place.range_end)
            )
        )
    ORDER BY d.topic, d.generation, d.partition, d."offset"
    LIMIT %(most)s
    FOR UPDATE
)

SELECT
    topic, generation, partition, "offset", batch_id, reason,
    row_number() OVER in_order AS number,
    sum(size_bytes) OVER in_order AS bytes_up_to_it
FROM locked
WINDOW in_order AS (ORDER BY topic, generation, partition, "offset");
