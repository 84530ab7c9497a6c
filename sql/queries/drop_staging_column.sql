-- Purpose: take a column out of staging whose value only the target knows (a serial or identity column, one that is
--   generated from it, one that a trigger may fill), with the CHECKs and generated columns that look at it.
-- Identifiers: rows (the staging table), column.
-- Locks: ACCESS EXCLUSIVE on the staging table. Safe to run twice: what is gone is passed over.
ALTER TABLE {rows} DROP COLUMN IF EXISTS {column} CASCADE
