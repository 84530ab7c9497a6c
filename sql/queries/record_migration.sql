-- Record that a migration was applied, in its own transaction.
-- Parameters: number, name, sha256. Locks: the new row.
-- Safe to run twice: a second row of the same number is refused (one_row_per_migration).
INSERT INTO kafka_ingest.schema_migration (number, name, sha256)
VALUES (%(number)s, %(name)s, %(sha256)s);
