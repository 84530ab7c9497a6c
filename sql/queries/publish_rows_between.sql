-- Move a stretch of the staging table into the target, to find the rows that the target refuses: as publish_rows, but
-- only of places in [first, last) of the table's file.
-- Identifiers: target, staging, columns. Parameters: task and attempt as arrays; first, last (ctid as text).
-- Locks: the target as INSERT does. Safe to run twice: no; batch and positions are locked before, and nothing that it
-- writes is committed.
INSERT INTO {target} ({columns})
SELECT {columns}
FROM {staging}
WHERE (stage_task, stage_attempt) IN (
    SELECT task, attempt
    FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
)
AND ctid >= %(first)s::tid
AND ctid < %(last)s::tid;
