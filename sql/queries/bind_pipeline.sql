-- Change what binds a pipeline: name, target, cluster, isolation level, identity columns. A new name reaches every row
-- of the pipeline by ON UPDATE CASCADE.
-- Parameters: known_name, pipeline, target_schema, target_table, cluster_id, isolation_level, topic_column,
-- generation_column, partition_column, offset_column.
-- Locks: the pipeline row, locked before; with a new name every row of the pipeline.
-- Safe to run twice: sets the same values, or finds no pipeline of the former name. A name that is taken is refused
-- (one_row_per_pipeline).
UPDATE kafka_ingest.pipeline
SET pipeline = %(pipeline)s,
    target_schema = %(target_schema)s,
    target_table = %(target_table)s,
    cluster_id = %(cluster_id)s,
    isolation_level = %(isolation_level)s,
    topic_column = %(topic_column)s,
    generation_column = %(generation_column)s,
    partition_column = %(partition_column)s,
    offset_column = %(offset_column)s
WHERE pipeline = %(known_name)s;
