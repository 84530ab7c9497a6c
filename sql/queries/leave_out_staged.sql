-- Purpose: delete staged changes that the target refuses, so that the fold can be made without them.
-- Identifiers: staged_rows, staged_partial, staged_deletes; their metadata columns topic, partition, offset_column.
-- Parameters: record_topic, record_partition, record_offset as arrays.
-- Locks: staged rows, which nobody else writes any more. Safe to run twice: finds nothing the second time.
WITH refused AS MATERIALIZED (
    SELECT topic, partition, "offset"
    FROM unnest(%(record_topic)s::text[], %(record_partition)s::integer[], %(record_offset)s::bigint[])
        AS refused (topic, partition, "offset")
),

gone_rows AS (
    DELETE FROM {staged_rows} AS s
    USING refused AS r
    WHERE (s.{topic}, s.{partition}, s.{offset_column}) = (r.topic, r.partition, r."offset")
),

gone_partial AS (
    DELETE FROM {staged_partial} AS s
    USING refused AS r
    WHERE (s.{topic}, s.{partition}, s.{offset_column}) = (r.topic, r.partition, r."offset")
)

DELETE FROM {staged_deletes} AS s
USING refused AS r
WHERE (s.{topic}, s.{partition}, s.{offset_column}) = (r.topic, r.partition, r."offset")
