-- Purpose: find the rows of an offset range, to replace them. BRIN: rows arrive in rising offset order, so it stays a
--   few pages and costs loading next to nothing.
-- Identifiers: table, partition, offset (metadata columns).
-- Locks: after create_target_table, in the same transaction. Not to run twice: it would be a second index.
CREATE INDEX ON {table} USING brin ({partition}, {offset}) WITH (autosummarize = on)
