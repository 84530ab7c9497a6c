-- Purpose: tell of each staged row with values that did not travel what its key had before: of each column the newest
--   value that is known since the last delete, staged or standing.
-- Identifiers: target, its metadata columns topic, generation, partition, offset_column; staged_rows, staged_partial,
--   staged_deletes; keys, keys_as, aliases (k1, k2, ...), t_keys_as, t_is_n, n_key_hash; t_is_w and w_key_hash (the key is
--   that of the read record); is_marked (whether a row stands for a delete); known_counts (of each column in doubt, how
--   many values of it are known so far, as c1, c2, ...), known_places (the kind and the place of the last, as kind1,
--   place1, kind2, ...).
-- Parameters: pipeline, is_rebuild, compacted (an array of topics of which nothing is known), task and attempt of the winners as arrays.
-- Locks: a new temporary table. Safe to run twice: no; a transaction folds once, and the table goes with it.
-- What stands counts at its own version: not for older records, which it has outdone. It does not count where its record
-- was read again and is no change of the key any more, or where a rebuild did not read it: then it goes. A row whose own
-- record is read again comes first: what it was filled with comes from before that record, and may be read anew, too.
CREATE TEMPORARY TABLE kafka_ingest_known ON COMMIT DROP AS
WITH winner AS MATERIALIZED (
    SELECT task, attempt FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
),

partial_key AS MATERIALIZED (
    SELECT DISTINCT {keys_as}
    FROM {staged_partial}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
),

event AS (
    SELECT
        {t_keys_as}, t.{generation} AS generation, t.{offset_column} AS "offset",
        w.topic IS NOT NULL AND NOT {is_marked} AS is_first, 0 AS turn, 'target' AS kind, NULL::tid AS place,
        NULL::text[] AS missing, {is_marked} AS is_end, t.{topic} = ANY (%(compacted)s::text[]) AS is_torn
    FROM partial_key AS n
    JOIN {target} AS t ON {t_is_n}
    LEFT JOIN pg_temp.kafka_ingest_read AS w
        ON w.topic = t.{topic}
        AND w.generation = t.{generation}
        AND w.partition = t.{partition}
        AND w."offset" = t.{offset_column}
    WHERE CASE WHEN w.topic IS NULL THEN NOT %(is_rebuild)s ELSE w.is_change AND {t_is_w} END
    UNION ALL
    SELECT n.*, r.generation, r."offset", false, 0, 'removed', NULL, NULL, true, false
    FROM partial_key AS n
    JOIN kafka_ingest.removed_key AS r ON r.pipeline = %(pipeline)s AND r.key_hash = {n_key_hash}
    LEFT JOIN pg_temp.kafka_ingest_read AS w
        ON (w.topic, w.generation, w.partition, w."offset") = (r.topic, r.generation, r.partition, r."offset")
    WHERE CASE WHEN w.topic IS NULL THEN NOT %(is_rebuild)s ELSE w.is_change AND {w_key_hash} = r.key_hash END
    UNION ALL
    SELECT {keys}, {generation}, {offset_column}, false, 1, 'rows', ctid, NULL, false,
        {topic} = ANY (%(compacted)s::text[])
    FROM {staged_rows}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
        AND ({keys}) IN (SELECT {aliases} FROM partial_key)
    UNION ALL
    SELECT {keys}, {generation}, {offset_column}, false, 1, 'partial', ctid, stage_missing, false,
        {topic} = ANY (%(compacted)s::text[])
    FROM {staged_partial}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
    UNION ALL
    SELECT {keys}, {generation}, {offset_column}, false, 1, 'deletes', ctid, NULL, true, false
    FROM {staged_deletes}
    WHERE (stage_task, stage_attempt) IN (SELECT task, attempt FROM winner)
        AND ({keys}) IN (SELECT {aliases} FROM partial_key)
),

in_lives AS (
    SELECT
        e.*,
        e.kind IN ('target', 'rows') AND NOT e.is_end AND NOT e.is_torn AS is_whole,
        count(*) FILTER (WHERE e.is_end) OVER so_far AS life,
        count(*) FILTER (WHERE e.turn = 0) OVER later > 0 AS is_outdone
    FROM event AS e
    WINDOW so_far AS (PARTITION BY {aliases} ORDER BY e.is_first DESC, e.generation, e."offset", e.turn),
        later AS (
            PARTITION BY {aliases}
            ORDER BY e.is_first DESC, e.generation, e."offset", e.turn
            ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        )
),

counted AS (
    SELECT
        e.*,
        bool_or(e.is_whole) OVER so_far AS has_base,
        {known_counts}
    FROM in_lives AS e
    WINDOW so_far AS (PARTITION BY {aliases}, e.life ORDER BY e.is_first DESC, e.generation, e."offset", e.turn)
),

told AS (
    SELECT
        e.kind, e.place, e.has_base, e.is_outdone,
        {known_places}
    FROM counted AS e
)

SELECT *
FROM told
WHERE kind = 'partial'
