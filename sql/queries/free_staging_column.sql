-- Purpose: let a staging column be NULL: the target fills it by a default, or a trigger may.
-- Identifiers: rows (the staging table), column.
-- Locks: ACCESS EXCLUSIVE on the staging table. Safe to run twice: dropping what is gone does nothing.
ALTER TABLE {rows} ALTER COLUMN {column} DROP NOT NULL
