-- Purpose: add columns to the target, and to its partitions and inheritance children: nullable, without a default, so
--   that no row is rewritten.
-- Identifiers: target; additions (ADD COLUMN, name and type of each).
-- Locks: ACCESS EXCLUSIVE on them (lock_target_table). Safe to run twice: the second is refused, the columns are there.
ALTER TABLE {target}
    {additions};
