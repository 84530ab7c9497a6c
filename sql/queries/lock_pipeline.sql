-- Let one plan or position change of a pipeline be recorded at a time.
-- Parameters: pipeline. Locks: the pipeline row, first of all. Safe to run twice: changes nothing.
SELECT pipeline
FROM kafka_ingest.pipeline
WHERE pipeline = %(pipeline)s
FOR UPDATE;
