-- Purpose: create the table that will take the place of the target: with its columns, defaults, generated columns, CHECKs,
--   indexes, statistics and comments.
-- Identifiers: rebuilt (the new table), replaced (the table whose place it takes).
-- Parameters: none. Locks: ACCESS SHARE on the target. Safe to run twice: no; the transaction that makes it renames it.
CREATE TABLE {rebuilt} (LIKE {replaced} INCLUDING ALL)
