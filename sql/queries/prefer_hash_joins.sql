-- Purpose: let the statements that compare all that was read with all that stands use no nested loops. What a task has
--   staged has no statistics, so that the planner expects a record or two, and would read all of it once for each row.
-- Parameters: is_wanted; false gives back the setting of role, database or server.
-- Locks: none. Safe to run twice: it sets the same again, for this transaction only.
SELECT set_config(
    'enable_nestloop',
    CASE WHEN %(is_wanted)s THEN 'off' ELSE s.reset_val END,
    true
)
FROM pg_catalog.pg_settings AS s
WHERE s.name = 'enable_nestloop'
