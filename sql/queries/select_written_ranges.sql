-- Read what batches wrote: their published ranges with the counts of rows and dead letters.
-- Parameters: batch_ids. Locks: none. Safe to run twice: reads only.
SELECT
    batch_id, topic, partition, generation, topic_id, line, range_start, range_end, committed_before, loaded_to,
    leader_epoch, reaches_high_watermark, rows, dead_letters
FROM kafka_ingest.batch_partition
WHERE batch_id = ANY (%(batch_ids)s::uuid[]) AND published
ORDER BY batch_id, topic, partition, generation;
