-- Purpose: make the table of records that were read again, as fold_read does, for a batch that reads nothing again.
-- Identifiers: staged_deletes, its metadata columns topic, generation, partition, offset_column; keys_as.
-- Parameters: none. Locks: a new temporary table. Safe to run twice: no; the table goes with the transaction.
CREATE TEMPORARY TABLE kafka_ingest_read ON COMMIT DROP AS
SELECT
    {keys_as}, {topic} AS topic, {generation} AS generation, {partition} AS partition, {offset_column} AS "offset",
    true AS is_change, true AS is_put
FROM {staged_deletes}
WITH NO DATA
