-- Purpose: create the table where the tasks of one attempt put rows: the target's columns with its NOT NULLs, CHECKs,
--   defaults and generated columns, so that PostgreSQL refuses here what the target would refuse. Unlogged and without
--   indexes: it lives for one attempt, and publishing counts its rows. Autovacuum would only compete with COPY.
-- Identifiers: rows (the staging table), target; constraints (INCLUDING CONSTRAINTS, or EXCLUDING where a trigger may
--   change rows before the target checks them).
-- Locks: ACCESS SHARE on the target. Safe to run twice: an existing table stays as it is.
CREATE UNLOGGED TABLE IF NOT EXISTS {rows} (
    LIKE {target} {constraints} INCLUDING DEFAULTS INCLUDING GENERATED,
    stage_task integer NOT NULL,
    stage_attempt bigint NOT NULL
) WITH (autovacuum_enabled = false)
