-- Purpose: count the dead letters of a batch by reason, with the first offset of each; the most frequent reason first.
-- Parameters: batch_id (uuid).
-- Locks: none. Safe to run twice: it only reads.
SELECT first.reason, first.records, first.topic, first.partition, first."offset"
  FROM (SELECT DISTINCT ON (d.reason)
               d.reason,
               count(*) OVER (PARTITION BY d.reason) AS records,
               d.topic,
               d.partition,
               d."offset"
          FROM kafka_ingest.dead_letter AS d
         WHERE d.batch_id = %(batch_id)s
         ORDER BY d.reason, d.topic, d.partition, d.generation, d."offset") AS first
 ORDER BY first.records DESC, first.reason;
