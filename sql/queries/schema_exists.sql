-- Purpose: tell whether a schema exists. CREATE SCHEMA IF NOT EXISTS needs the right to create one even if it is there.
-- Parameters: schema (name without quotes).
-- Locks: none. Safe to run twice: it only reads the catalog.
SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s)
