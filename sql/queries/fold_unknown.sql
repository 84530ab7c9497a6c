-- Purpose: make dead letters of staged rows with values that nobody knows: no older change since the last delete has
--   them, and what stands does not, either. One that is outdone by what stands stays, for it is not written anyway.
-- Identifiers: staged_partial, its metadata columns topic, generation, partition, offset_column; staged_letters,
--   staged_dead_letters.
-- Parameters: first_offsets (how many to name of each partition).
-- Locks: staged rows, which nobody else writes any more. Safe to run twice: finds nothing the second time.
WITH gone AS (
    DELETE FROM {staged_partial} AS s
    USING pg_temp.kafka_ingest_known AS k
    WHERE s.ctid = k.place AND NOT k.has_base AND NOT k.is_outdone AND NOT s.stage_may_be_null
    RETURNING
        s.{topic} AS topic, s.{generation} AS generation, s.{partition} AS partition, s.{offset_column} AS "offset",
        s.stage_task, s.stage_attempt
),

letter AS (
    INSERT INTO {staged_dead_letters}
    SELECT l.*
    FROM {staged_letters} AS l
    JOIN gone AS g USING (topic, generation, partition, "offset", stage_task, stage_attempt)
    RETURNING topic, partition, "offset", detail
),

no_change AS (
    UPDATE pg_temp.kafka_ingest_read AS w
    SET is_change = false, is_put = false
    FROM gone AS g
    WHERE (w.topic, w.generation, w.partition, w."offset") = (g.topic, g.generation, g.partition, g."offset")
)

SELECT
    topic, partition, count(*) AS records,
    (array_agg("offset" ORDER BY "offset"))[1 : %(first_offsets)s] AS first_offsets,
    (array_agg(detail ORDER BY "offset"))[1] AS first_detail
FROM letter
GROUP BY topic, partition
ORDER BY topic, partition
