-- Purpose: have the catalog's functions write every name outside pg_catalog with its schema, for this transaction.
-- Parameters: none.
-- Locks: none. Safe to run twice: it sets the same value again.
SET LOCAL search_path = pg_catalog
