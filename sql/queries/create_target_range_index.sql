-- Purpose: create the index that finds the rows of an offset range, to replace them. BRIN: rows arrive in rising offset
--   order, so it needs only a few pages and loading stays as fast.
-- Identifiers: table, partition, offset (metadata columns).
-- Locks: after create_target_table, in the same transaction. Not to run twice: it would be a second index.
CREATE INDEX ON {table} USING brin ({partition}, {offset}) WITH (autosummarize = on)
