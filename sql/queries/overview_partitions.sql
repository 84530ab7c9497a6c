-- Purpose: partitions of a pipeline, each with its position and what the newest plan saw of its log: first those that have
--   lost records, then those with the greatest lag.
-- Parameters: pipeline (text), limit (integer, NULL: all).
-- Locks: none. Safe to run twice: it only reads.
WITH retired AS MATERIALIZED (
    SELECT s.topic
      FROM kafka_ingest.served_topic AS s
      JOIN kafka_ingest.pipeline AS p USING (pipeline, target_schema, target_table, cluster_id)
     WHERE s.pipeline = %(pipeline)s AND s.retired_at IS NOT NULL
)

SELECT c.topic,
       c.partition,
       c.generation,
       c.topic_id,
       c.cluster_id,
       c.committed_offset,
       c.loaded_to,
       c.line,
       c.leader_epoch,
       c.valid_through,
       c.updated_at,
       c.batch_id::text AS batch_id,
       c.topic IN (SELECT topic FROM retired) AS is_retired,
       o.seen_at,
       o.topic_id AS seen_topic_id,
       o.log_start_offset,
       o.end_offset,
       o.high_watermark,
       o.rate_from_at,
       o.rate_from_offset,
       o.next_rate_from_at,
       o.next_rate_from_offset
  FROM kafka_ingest.committed_offset AS c
  LEFT JOIN kafka_ingest.log_observation AS o
    ON o.pipeline = c.pipeline
   AND o.topic = c.topic
   AND o.partition = c.partition
   AND o.seen_at = (SELECT max(seen_at) FROM kafka_ingest.log_observation WHERE pipeline = %(pipeline)s)
 WHERE c.pipeline = %(pipeline)s
 ORDER BY coalesce(c.committed_offset < o.log_start_offset, false) DESC,
          greatest(0, o.end_offset - c.committed_offset) DESC,
          c.topic,
          c.partition
 LIMIT %(limit)s
