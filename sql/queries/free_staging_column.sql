-- Purpose: let a staging column stay NULL that only the target fills (a default, an identity column).
-- Identifiers: rows (the staging table), column.
-- Locks: ACCESS EXCLUSIVE on the staging table. Safe to run twice: dropping what is gone does nothing.
ALTER TABLE {rows} ALTER COLUMN {column} DROP NOT NULL
