-- Purpose: drop one staging table.
-- Identifiers: staging_table.
-- Locks: ACCESS EXCLUSIVE on it, waited for up to lock_timeout. Safe to run twice: a missing table is no error.
DROP TABLE IF EXISTS {staging_table}
