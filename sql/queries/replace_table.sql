-- Purpose: let a new table take the place of another one, which is kept under another name. Readers see the one or the
--   other.
-- Identifiers: replaced (the table whose place is taken), kept_as and table (names without schema), rebuilt.
-- Parameters: none. Locks: ACCESS EXCLUSIVE on both. Safe to run twice: no; the names differ then.
ALTER TABLE {replaced} RENAME TO {kept_as};
ALTER TABLE {rebuilt} RENAME TO {table}
