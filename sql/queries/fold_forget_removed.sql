-- Purpose: delete the entries of removed keys that are written anew.
-- Identifiers: f_key_hash; applies.
-- Parameters: pipeline. Locks: the entries. Safe to run twice: the second time they are gone.
DELETE FROM kafka_ingest.removed_key AS r
USING pg_temp.kafka_ingest_fold AS f
WHERE r.pipeline = %(pipeline)s
    AND r.key_hash = {f_key_hash}
    AND f.is_removed
    AND NOT f.is_delete
    AND {applies}
