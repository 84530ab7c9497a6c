-- Purpose: keep everybody from the table that is to be replaced, for the moment until this transaction ends.
-- Identifiers: replaced.
-- Parameters: none. Locks: ACCESS EXCLUSIVE on it (after everything else). Safe to run twice: it has the lock then.
LOCK TABLE {replaced} IN ACCESS EXCLUSIVE MODE
