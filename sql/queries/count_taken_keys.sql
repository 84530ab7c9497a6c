-- Purpose: count the keys of the fold that had no row when it was made, and have one that somebody else has written.
-- Identifiers: target, t_is_f; f_key.
-- Parameters: first_keys. Locks: none. Safe to run twice: it only reads. A new statement sees what was committed since.
SELECT count(*) AS taken, (array_agg({f_key}::text))[1 : %(first_keys)s] AS first_taken
FROM pg_temp.kafka_ingest_fold AS f
JOIN {target} AS t ON {t_is_f}
WHERE f.row_place IS NULL
