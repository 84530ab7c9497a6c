-- Supersede a planned batch. Returns no row when the batch was committed meanwhile: this waits for a publish under way,
-- which wins.
-- Parameters: batch_id, pipeline. Locks: the batch row (the pipeline row is locked before).
-- Safe to run twice: the second time finds no planned batch.
UPDATE kafka_ingest.batch
SET state = 'superseded'
WHERE batch_id = %(batch_id)s::uuid AND pipeline = %(pipeline)s AND state = 'planned';
