"""What a table that holds the current state must be like, beyond what every target must: one row a key.

Pure: every difference is a value.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_ingest.postgres.catalog import CatalogIndex, CatalogTable, Mismatch
from kafka_ingest.protocol.target import quoted, quoted_table, written_columns
from kafka_ingest.settings import BatchSettings, Deletes, UpsertSettings


def upsert_mismatches(settings: BatchSettings, upsert: UpsertSettings, table: CatalogTable) -> Iterator[Mismatch]:
    """Yield why the table cannot hold the newest record of each key; types and rights are checked elsewhere."""
    alter = f"ALTER TABLE {quoted_table(settings.target)}"
    yield from _key_index_mismatches(alter, upsert, table)
    yield from _collation_mismatches(alter, upsert, table)
    if upsert.deletes is Deletes.MARK:
        yield from _marked_row_mismatches(alter, settings, table)
    for rule in (hook for hook in table.hooks if hook.is_instead and not hook.on_insert):
        event = "UPDATE" if rule.on_update else "DELETE"
        expected, found = f"no rule that takes the place of {event}", f"a rule ON {event} DO INSTEAD"
        yield Mismatch(str(rule), expected, found, f"DROP RULE {quoted(rule.name)} ON {rule.relation};")
    for child in table.children:
        expected = "no table that inherits from the target: its keys are in no unique index of the target"
        yield Mismatch(
            child, expected, "it inherits", f"ALTER TABLE {child} NO INHERIT {quoted_table(settings.target)};"
        )
    for part in table.unidentified_parts:
        found = f"publication {part.updates or part.deletes} publishes what batches change, and there is none"
        yield Mismatch(part.name, "a replica identity", found, f"ALTER TABLE {part.name} REPLICA IDENTITY FULL;")


def _key_index_mismatches(alter: str, upsert: UpsertSettings, table: CatalogTable) -> Iterator[Mismatch]:
    candidates = [index for index in table.indexes if index.is_unique and index.is_over(upsert.key)]
    faults = {index.name: tuple(_index_faults(index)) for index in candidates}
    if any(not found for found in faults.values()):
        return
    names = ", ".join(map(quoted, upsert.key))
    found = "; ".join(f"unique index {name}, but it {' and '.join(texts)}" for name, texts in faults.items())
    yield Mismatch("key", f"a unique index over exactly ({names})", found or "none", f"{alter} ADD UNIQUE ({names});")


def _index_faults(index: CatalogIndex) -> Iterator[str]:
    """Yield why the index cannot find the one row of a key, or does not refuse a second one at once."""
    if not index.is_valid:
        yield "is invalid"
    if index.is_partial:
        yield "is partial"
    if not index.is_immediate:
        yield "is deferrable"
    if index.method != "btree":
        yield f"is no btree but a {index.method}"
    if index.other_collations:
        yield f"has another collation than its column ({', '.join(index.other_collations)})"
    if index.other_operators:
        yield f"has another operator class than its type's default ({', '.join(index.other_operators)})"


def _collation_mismatches(alter: str, upsert: UpsertSettings, table: CatalogTable) -> Iterator[Mismatch]:
    for column in table.columns:
        if column.name in upsert.key and column.loose_collation:
            fix = f'{alter} ALTER COLUMN {quoted(column.name)} TYPE {column.type} COLLATE pg_catalog."default";'
            found = f"{column.loose_collation}, which takes different keys for one"
            yield Mismatch(f"column {column.name}", "a deterministic collation", found, fix)


def _marked_row_mismatches(alter: str, settings: BatchSettings, table: CatalogTable) -> Iterator[Mismatch]:
    """Yield columns that cannot be NULL in a row that only says that its key was deleted."""
    metadata = settings.metadata
    known = {metadata.topic, metadata.generation, metadata.partition, metadata.offset, metadata.batch_id}
    known |= {metadata.timestamp, metadata.timestamp_type or "", *settings.never_null}
    known |= {column.name for column in settings.value.columns if column.required}
    written = {column.name for column in written_columns(settings)} - known
    for column in (column for column in table.columns if column.name in written and column.is_not_null):
        name = quoted(column.name)
        fix = f"{alter} ALTER COLUMN {name} DROP NOT NULL"
        if column.domain_over:  # it may be the domain that refuses NULL
            fix += f", ALTER COLUMN {name} TYPE {column.domain_over}"
        expected = "NULL allowed: the row of a delete has no value there"
        yield Mismatch(f"column {column.name}", expected, "NOT NULL", f"{fix};")


def upsert_weaknesses(settings: BatchSettings, upsert: UpsertSettings, table: CatalogTable) -> Iterator[Mismatch]:
    """Yield unique indexes beside the key that a batch can run into, although each of its rows is right in the end."""
    metadata, name = settings.metadata, quoted_table(settings.target)
    identity = {metadata.topic, metadata.generation, metadata.partition, metadata.offset}
    written = {column.name for column in written_columns(settings)}
    for index in (index for index in table.indexes if index.is_unique and index.is_immediate and index.is_valid):
        columns = set(index.columns)
        # What holds a key, or a record's identity, is unique by that; what the pipeline does not write does not move.
        is_unique_anyway = columns >= set(upsert.key) or columns >= identity
        if not is_unique_anyway and (index.has_expressions or columns & written):
            subject = f"unique index {index.name} on ({index.keys})"
            expected = "none beside the key, or one that is DEFERRABLE INITIALLY DEFERRED"
            found = "a value that moves from one key to another in one batch stops the publish"
            yield Mismatch(subject, expected, found, _deferred(name, index))


def _deferred(table: str, index: CatalogIndex) -> str:
    """Return the statements that make it deferrable; over expressions or some rows only, it cannot be: it goes."""
    if index.is_partial or index.has_expressions:
        return f"DROP INDEX {index.name};"
    unique = f"ADD UNIQUE ({index.keys}) DEFERRABLE INITIALLY DEFERRED;"
    if index.constraint is not None:
        return f"ALTER TABLE {table} DROP CONSTRAINT {quoted(index.constraint)}, {unique}"
    return f"DROP INDEX {index.name}; ALTER TABLE {table} {unique}"
