-- Purpose: keep everybody else from altering the target, before columns are added; adding them takes the same lock.
-- Identifiers: target.
-- Locks: ACCESS EXCLUSIVE on the target and its partitions, for lock_timeout at most. Safe to run twice: the lock is held.
LOCK TABLE {target} IN ACCESS EXCLUSIVE MODE;
