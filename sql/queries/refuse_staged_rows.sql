-- Make dead letters of staged rows that the target refuses.
-- Identifiers: staged_rows with its metadata columns topic_column, generation_column, partition_column, offset_column,
-- and staged_dead_letters.
-- Parameters: topic, partition, offset, reason, detail as arrays, one element a record.
-- Locks: staged rows, which nobody else writes. Safe to run twice: the second time finds none.
WITH refused AS (
    DELETE FROM {staged_rows} AS s
    USING unnest(
        %(topic)s::text[], %(partition)s::integer[], %(offset)s::bigint[], %(reason)s::text[], %(detail)s::text[]
    ) AS r (topic, partition, "offset", reason, detail)
    WHERE s.{topic_column} = r.topic
        AND s.{partition_column} = r.partition
        AND s.{offset_column} = r."offset"
    RETURNING r.topic, s.{generation_column} AS generation, r.partition, r."offset", r.reason, r.detail, s.stage_task,
        s.stage_attempt
)

INSERT INTO {staged_dead_letters} (
    topic, generation, partition, "offset", reason, detail, stage_task, stage_attempt
)
SELECT topic, generation, partition, "offset", reason, detail, stage_task, stage_attempt
FROM refused;
