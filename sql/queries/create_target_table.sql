-- Purpose: a target table with the columns that the pipeline writes. Logged: an unlogged one is emptied by a crash while
--   the ledger still says that its rows are there.
-- Identifiers: table; columns (definitions, in the order in which they are written).
-- Locks: after lock_table_creation. Safe to run twice: the second run fails with duplicate_table, which the caller takes
--   for "it is there" and then checks.
CREATE TABLE {table} (
    {columns}
)
