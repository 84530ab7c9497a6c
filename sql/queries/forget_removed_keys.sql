-- Purpose: delete the removed keys of a pipeline, for a table that begins anew: its fold finds them again.
-- Parameters: pipeline. Locks: the entries. Safe to run twice: finds nothing the second time.
DELETE FROM kafka_ingest.removed_key
WHERE pipeline = %(pipeline)s
