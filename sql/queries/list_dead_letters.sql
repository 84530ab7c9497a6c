-- Purpose: dead letters of a pipeline in the order of their offsets, those of the newest batch first.
-- Parameters: pipeline (text), batch_id (uuid, NULL for all batches), limit (integer).
-- Locks: none. Safe to run twice: it only reads.
SELECT dead_letter.topic,
       dead_letter.generation,
       dead_letter.partition,
       dead_letter."offset",
       dead_letter.record_time,
       dead_letter.reason,
       dead_letter.detail,
       dead_letter.batch_id::text AS batch_id,
       dead_letter.resolved_at,
       dead_letter.resolution,
       dead_letter.key,
       dead_letter.value,
       dead_letter.header_names,
       dead_letter.header_values
  FROM kafka_ingest.dead_letter AS dead_letter
  JOIN kafka_ingest.batch AS batch ON batch.batch_id = dead_letter.batch_id
 WHERE dead_letter.pipeline = %(pipeline)s
   AND (%(batch_id)s::uuid IS NULL OR dead_letter.batch_id = %(batch_id)s::uuid)
 ORDER BY batch.ordinal DESC, dead_letter.topic, dead_letter.partition, dead_letter."offset"
 LIMIT %(limit)s
