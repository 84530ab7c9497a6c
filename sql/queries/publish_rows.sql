-- Move staged rows into the target: only those of the winning attempt of each task.
-- Identifiers: target, staging, columns. Parameters: task and attempt as arrays.
-- Locks: the target as INSERT does. Safe to run twice: no; batch row and positions, locked before, keep it to once.
INSERT INTO {target} ({columns})
SELECT {columns}
FROM {staging}
WHERE (stage_task, stage_attempt) IN (
    SELECT task, attempt
    FROM unnest(%(task)s::integer[], %(attempt)s::bigint[]) AS winner (task, attempt)
);
