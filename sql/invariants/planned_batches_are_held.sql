-- A batch has a hold, of its own claim, exactly while it is planned.
-- Parameters: pipeline, newest_batches (how far back to look). Locks: none. Returns the batches that break this.
WITH newest AS (
    SELECT batch_id, state, claim
    FROM kafka_ingest.batch
    WHERE pipeline = %(pipeline)s
    ORDER BY ordinal DESC
    LIMIT %(newest_batches)s
)

SELECT b.batch_id, b.state, b.claim, h.claim AS claim_of_hold
FROM newest AS b
LEFT JOIN kafka_ingest.batch_hold AS h USING (batch_id)
WHERE (b.state = 'planned' AND h.claim IS DISTINCT FROM b.claim)
    OR (b.state <> 'planned' AND h.batch_id IS NOT NULL);
