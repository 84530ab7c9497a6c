-- Name offsets of a piece: the first that have two rows, and the first that have neither a row nor a dead letter.
-- Identifiers: target, and its metadata columns topic, generation, partition, offset_column.
-- Parameters: pipeline, topic, generation, partition, range_start, range_end, first_offsets (how many).
-- Locks: none. Safe to run twice: reads only. Returns one row with two arrays, empty where there is none.
WITH found AS MATERIALIZED (
    SELECT t.{offset_column} AS "offset", count(*) AS rows
    FROM {target} AS t
    WHERE t.{topic} = %(topic)s
        AND t.{generation} = %(generation)s
        AND t.{partition} = %(partition)s
        AND t.{offset_column} >= %(range_start)s
        AND t.{offset_column} < %(range_end)s
    GROUP BY t.{offset_column}
)

SELECT
    array(SELECT "offset" FROM found WHERE rows > 1 ORDER BY "offset" LIMIT %(first_offsets)s) AS doubled,
    array(
        SELECT "offset"
        FROM generate_series(%(range_start)s::bigint, %(range_end)s::bigint - 1) AS "offset"
        WHERE NOT EXISTS (SELECT FROM found WHERE found."offset" = "offset"."offset")
            AND NOT EXISTS (
                SELECT
                FROM kafka_ingest.dead_letter AS d
                WHERE d.pipeline = %(pipeline)s
                    AND d.topic = %(topic)s
                    AND d.generation = %(generation)s
                    AND d.partition = %(partition)s
                    AND d."offset" = "offset"."offset"
            )
        ORDER BY "offset"
        LIMIT %(first_offsets)s
    ) AS absent;
