-- Purpose: create the schema of a target table that the pipeline may create.
-- Identifiers: schema.
-- Locks: after lock_table_creation. Safe to run twice: an existing schema stays as it is.
CREATE SCHEMA IF NOT EXISTS {schema}
