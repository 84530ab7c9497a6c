-- Read the frozen ranges of batches.
-- Parameters: batch_ids. Locks: none. Safe to run twice: reads only.
SELECT
    batch_id, topic, partition, generation, topic_id, line, range_start, range_end, committed_before, loaded_to,
    leader_epoch, reaches_high_watermark
FROM kafka_ingest.batch_partition
WHERE batch_id = ANY (%(batch_ids)s::uuid[])
ORDER BY batch_id, topic, partition, generation;
