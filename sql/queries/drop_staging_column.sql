-- Purpose: drop a column of staging whose value only the target knows (a serial or identity column, one that is
--   generated from it, one that a trigger may fill), with the CHECKs and generated columns that read it.
-- Identifiers: rows (the staging table), column.
-- Locks: ACCESS EXCLUSIVE on the staging table. Safe to run twice: a dropped column is no error.
ALTER TABLE {rows} DROP COLUMN IF EXISTS {column} CASCADE
