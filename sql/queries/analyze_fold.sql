-- Purpose: let the planner know how large a temporary table of the fold is.
-- Identifiers: fold_table. Parameters: none. Locks: none beyond the table's own. Safe to run twice.
ANALYZE pg_temp.{fold_table}
