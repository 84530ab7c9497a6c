-- Purpose: every partition of a pipeline: its position, and what the newest plan saw of its log.
-- Parameters: pipeline (text).
-- Locks: none. Safe to run twice: it only reads.
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
       EXISTS (
           SELECT
             FROM kafka_ingest.served_topic AS s
             JOIN kafka_ingest.pipeline AS p USING (pipeline, target_schema, target_table, cluster_id)
            WHERE s.pipeline = c.pipeline AND s.topic = c.topic AND s.retired_at IS NOT NULL
       ) AS is_retired
  FROM kafka_ingest.committed_offset AS c
 WHERE c.pipeline = %(pipeline)s
 ORDER BY c.topic, c.partition
