-- Purpose: create a target table with the columns that the pipeline writes. Logged: a crash empties an unlogged table
--   while the ledger still says that its rows are there.
-- Identifiers: table; columns (definitions, in the order in which they are written).
-- Locks: after lock_table_creation. Safe to run twice: the second run fails with duplicate_table, which the caller
-- takes for "it is there" and then checks.
CREATE TABLE {table} (
    {columns}
)
