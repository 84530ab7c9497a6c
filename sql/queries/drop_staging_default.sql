-- Purpose: keep staging from drawing numbers from a sequence of the target.
-- Identifiers: rows (the staging table), column.
-- Locks: ACCESS EXCLUSIVE on the staging table. Safe to run twice: dropping what is gone does nothing.
ALTER TABLE {rows} ALTER COLUMN {column} DROP DEFAULT
