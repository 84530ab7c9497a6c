"""The target table as the protocol sees it: the columns that are written, their shape, names in messages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_ingest.column_types import MAX_IDENTIFIER_BYTES
from kafka_ingest.settings import (
    HISTORY_COLUMNS,
    BatchSettings,
    ColumnSettings,
    Deletes,
    KeyFormat,
    NewFields,
    OrderBy,
    TargetSettings,
    UpsertSettings,
)


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column that the pipeline fills: name, type in PostgreSQL's spelling, and whether it is NOT NULL."""

    name: str
    type: str
    is_not_null: bool


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column that a field brought: its name, its type, and the keys from the root of the value to the field."""

    name: str
    type: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """A CHECK constraint: its name, its expression from ``pg_get_expr``, and the columns that it reads."""

    name: str
    expression: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetShape:
    """The columns that the pipeline fills, in the order in which they are written, and the CHECKs that are staged."""

    columns: tuple[TargetColumn, ...]
    checks: tuple[CheckConstraint, ...]


def quoted(name: str) -> str:
    """Quote an identifier for a message."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(target: TargetSettings) -> str:
    """Quote the target's name for a message."""
    return f"{quoted(target.schema)}.{quoted(target.table)}"


def kept_table(target: TargetSettings, batch_id: str) -> TargetSettings:
    """Return under which name a table is kept whose place a new one has taken."""
    beginning = target.table.encode()[: MAX_IDENTIFIER_BYTES - 16].decode(errors="ignore")
    return TargetSettings(target.schema, f"{beginning}_before_{batch_id[:8]}")


def rename_column(target: TargetSettings, before: str, after: str) -> str:
    """Return the statement that renames a column of the target."""
    return f"ALTER TABLE {quoted_table(target)} RENAME COLUMN {quoted(before)} TO {quoted(after)};"


def delete_settings(settings: BatchSettings) -> BatchSettings:
    """Return the settings under which a delete is decoded and written: of its columns only key and order are left.

    They are those of a pipeline that appends: whatever else is in the record, these columns must be there.
    """
    never_null, key = settings.never_null, settings.key
    columns = tuple(column for column in settings.value.columns if column.name in never_null)
    reads_key = key is not None and (key.column is None or key.column in never_null)
    return replace(
        settings,
        value=replace(settings.value, columns=columns, new_fields=NewFields.IGNORE),
        key=key if reads_key else None,
        headers_column=None,
        upsert=None,
    )


def history_settings(settings: BatchSettings) -> BatchSettings:
    """Return the settings whose target is the history: a row for each record, with the columns of the current state.

    Whatever is no key of the current state is NULL in the row of a delete, or where it did not travel.
    """
    assert settings.history is not None  # noqa: S101 - who calls it has looked
    never_null, identity = settings.never_null, settings.metadata.identity
    columns = (replace(c, required=c.name in never_null) for c in settings.value.columns)
    change, unavailable = (
        ColumnSettings(name, type_) for name, type_ in zip(HISTORY_COLUMNS, ("text", "text[]"), strict=True)
    )
    key = settings.key and replace(settings.key, required=settings.key.column in never_null)
    return replace(
        settings,
        value=replace(settings.value, columns=(*columns, replace(change, required=True), unavailable)),
        key=key,
        target=settings.history,
        upsert=UpsertSettings(
            (identity.topic, identity.generation, identity.partition, identity.offset), OrderBy.OFFSET, Deletes.MARK
        ),
        history=None,
    )


_KEY_TYPES = {KeyFormat.RAW: "bytea", KeyFormat.TEXT: "text", KeyFormat.JSON: "jsonb"}


def written_columns(settings: BatchSettings) -> tuple[TargetColumn, ...]:
    """Return every column that the pipeline writes: value, key, headers, metadata; in this order everywhere.

    The column that tells when a row was deleted is among the metadata.

    ``is_not_null`` says what a created table gets; an existing table may be stricter (``TargetShape``).
    """
    metadata = settings.metadata
    columns = [TargetColumn(c.name, c.type, c.required) for c in settings.value.columns]
    if settings.key and settings.key.column:
        columns.append(TargetColumn(settings.key.column, _KEY_TYPES[settings.key.format], settings.key.required))
    if settings.headers_column:
        columns.append(TargetColumn(settings.headers_column, "jsonb", False))
    columns += [
        TargetColumn(metadata.topic, "text", True),
        TargetColumn(metadata.generation, "integer", True),
        TargetColumn(metadata.partition, "integer", True),
        TargetColumn(metadata.offset, "bigint", True),
        TargetColumn(metadata.timestamp, "timestamp with time zone", False),
    ]
    if metadata.timestamp_type:
        columns.append(TargetColumn(metadata.timestamp_type, "text", False))
    if settings.upsert and settings.upsert.deleted_at:
        columns.append(TargetColumn(settings.upsert.deleted_at, "timestamp with time zone", False))
    return (*columns, TargetColumn(metadata.batch_id, "uuid", True))
