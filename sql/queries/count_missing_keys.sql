-- Purpose: count the keys of the table whose place a new one takes that the fold does not have at all: they would be gone.
-- Identifiers: replaced (the old table), t_is_f, t_key (the key's columns as an array of texts).
-- Parameters: first_keys.
-- Locks: none. Safe to run twice: it only reads. Reads the whole table.
WITH missing AS (
    SELECT {t_key} AS key
    FROM {replaced} AS t
    WHERE NOT EXISTS (SELECT FROM pg_temp.kafka_ingest_fold AS f WHERE {t_is_f})
)

SELECT count(*) AS missing, (array_agg(key::text ORDER BY key))[1 : %(first_keys)s] AS first_missing
FROM missing
