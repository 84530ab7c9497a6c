-- Purpose: count what stops a fold: rows without a version, and, where offsets order the records, keys that two
--   partitions of one generation hold, or two topics: in the batch, or in the batch and in what stands.
-- Identifiers: f_key (the key's columns as an array of texts).
-- Parameters: is_by_offset, first_keys (how many to name).
-- Locks: none. Safe to run twice: it only reads.
WITH found AS (
    SELECT
        {f_key} AS key,
        f.row_place IS NOT NULL AND (
            num_nulls(f.have_topic, f.have_generation, f.have_partition, f.have_offset) > 0
            OR NOT %(is_by_offset)s AND f.have_order_value IS NULL
        ) AS has_no_version,
        %(is_by_offset)s AND (
            f.is_in_two_partitions
            OR f.have_topic <> f.topic
            OR f.have_generation = f.generation AND f.have_partition <> f.partition
        ) AS is_in_two_partitions
    FROM pg_temp.kafka_ingest_fold AS f
)

SELECT
    count(*) FILTER (WHERE has_no_version) AS without_version,
    (array_agg(key::text ORDER BY key) FILTER (WHERE has_no_version))[1 : %(first_keys)s] AS first_without_version,
    count(*) FILTER (WHERE is_in_two_partitions) AS in_two_partitions,
    (
        array_agg(key::text ORDER BY key) FILTER (WHERE is_in_two_partitions)
    )[1 : %(first_keys)s] AS first_in_two_partitions
FROM found
WHERE has_no_version OR is_in_two_partitions
