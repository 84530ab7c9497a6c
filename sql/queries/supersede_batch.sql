-- Takes a planned batch out of the way of a new plan. No row when it was committed meanwhile: a publish under way is
-- waited for, and wins.
-- Parameters: batch_id, pipeline. Locks: the batch row (the pipeline row is locked before).
-- Safe to run twice: the second time finds no planned batch.
UPDATE kafka_ingest.batch
SET state = 'superseded'
WHERE batch_id = %(batch_id)s::uuid AND pipeline = %(pipeline)s AND state = 'planned';
