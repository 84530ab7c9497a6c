-- Store the new reasons of dead letters that still do not fit; count them by reason, with the first one of each.
-- Identifiers: staged_dead_letters.
-- Parameters: pipeline.
-- Locks: the dead letters (locked before). Safe to run twice: it sets the same reasons again.
WITH kept AS (
    UPDATE kafka_ingest.dead_letter AS d
    SET reason = s.reason,
        detail = s.detail
    FROM {staged_dead_letters} AS s
    WHERE d.pipeline = %(pipeline)s
        AND (d.topic, d.generation, d.partition, d."offset") = (s.topic, s.generation, s.partition, s."offset")
        AND d.resolved_at IS NULL
    RETURNING d.topic, d.generation, d.partition, d."offset", d.reason, d.detail
)

SELECT DISTINCT ON (reason)
    reason, count(*) OVER (PARTITION BY reason) AS records, topic, partition, "offset", detail
FROM kept
ORDER BY reason, topic, generation, partition, "offset";
