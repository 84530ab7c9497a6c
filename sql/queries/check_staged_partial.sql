-- Purpose: let a CHECK of the target judge staged rows of which every value that it reads has travelled; the others are
--   judged by the target, with their values.
-- Identifiers: partial (the staging table), constraint, columns_read (an array of the names of the columns that it reads),
--   expression (the catalog's own text).
-- Locks: the staging table, which nobody else uses yet. Safe to run twice: the same constraint takes its own place.
ALTER TABLE {partial}
    DROP CONSTRAINT IF EXISTS {constraint},
    ADD CONSTRAINT {constraint} CHECK (stage_missing && {columns_read} OR ({expression}))
