-- Read the offsets that were written, or emptied by a roll-back, since an audit of the whole table began.
-- Parameters: pipeline, newest (ordinal of the newest batch at that time), newest_change (number of the newest change).
-- Locks: none. Safe to run twice: reads only.
SELECT r.topic, r.generation, r.partition, r.range_start, r.range_end
FROM kafka_ingest.batch AS b
JOIN kafka_ingest.batch_partition AS r USING (batch_id)
WHERE b.pipeline = %(pipeline)s
    AND b.ordinal > %(newest)s
    AND b.state IN ('committed', 'rolled_back')
    AND r.published
UNION ALL
SELECT topic, to_generation, partition, to_offset, from_offset
FROM kafka_ingest.position_change
WHERE change_number > %(newest_change)s
    AND pipeline = %(pipeline)s
    AND kind = 'rolled_back'
    AND to_offset < from_offset;
