-- Purpose: let the attempts of a pipeline follow its new name.
-- Parameters: known_name, pipeline (text).
-- Locks: the attempts. Safe to run twice: the second time there are none of the former name.
UPDATE kafka_ingest.attempt SET pipeline = %(pipeline)s WHERE pipeline = %(known_name)s
