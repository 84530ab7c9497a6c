"""The target table: what it must be like, and how it is created."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg2
from psycopg2 import errorcodes, sql

from kafka_ingest.column_types import STAGING_COLUMNS, can_hold, parse_column_type
from kafka_ingest.errors import TargetMismatch, change_command
from kafka_ingest.postgres.catalog import (
    KIND_NAMES,
    TABLE_KINDS,
    CatalogColumn,
    CatalogTable,
    LoadedRows,
    Mismatch,
    Rights,
    read_loaded_rows,
    read_table,
    target_identifiers,
)
from kafka_ingest.postgres.database import Identifiers, NewSessions, Sessions, database_faults, run_query, transaction
from kafka_ingest.postgres.rebuilt_table import require_replaceable
from kafka_ingest.postgres.upsert_target import upsert_mismatches, upsert_weaknesses
from kafka_ingest.protocol.target import (
    TargetColumn,
    TargetShape,
    history_settings,
    quoted,
    quoted_table,
    rename_column,
    written_columns,
)
from kafka_ingest.settings import BatchSettings, NewFields, TargetSettings

# ----------
# An existing target table against what the pipeline writes. Pure: every difference is a value.


def mismatches(settings: BatchSettings, table: CatalogTable, loaded: Sequence[LoadedRows] = ()) -> tuple[Mismatch, ...]:
    """Return every reason why the pipeline cannot load into the table, in a stable order; empty when it can."""
    return (*table_mismatches(settings, table, loaded), *_staging_right_mismatches(table))


def table_mismatches(
    settings: BatchSettings, table: CatalogTable, loaded: Sequence[LoadedRows] = ()
) -> tuple[Mismatch, ...]:
    """Return the reasons in the table and the role's rights on it, without those in staging and database.

    Args:
        settings: What the pipeline writes.
        table: The table.
        loaded: Who has loaded rows that a missing column identified.
    """
    if table.kind not in TABLE_KINDS:
        kind = KIND_NAMES.get(table.kind, f"a relation of kind {table.kind}")
        advice = "name the table itself under target.table, or drop the relation"
        return (Mismatch(str(settings.target), "a table or a partitioned table", kind, advice),)
    return (
        *_table_mismatches(settings, table),
        *_column_mismatches(settings, table, loaded),
        *_other_column_mismatches(settings, table),
        *_unique_key_mismatches(settings, table),
        *(upsert_mismatches(settings, settings.upsert, table) if settings.upsert else ()),
        *_table_right_mismatches(settings, table),
        *_used_right_mismatches(settings, table),
        *(owner_mismatches(table) if settings.value.new_fields is NewFields.ADD_COLUMN else ()),
    )


def missing_table(settings: BatchSettings, loaded: Sequence[LoadedRows] = ()) -> Mismatch:
    """Return the mismatch of a missing table, with the statement that creates it if that loses nothing.

    Args:
        settings: What the pipeline writes.
        loaded: Who has loaded rows into it.
    """
    if loaded:
        return _lost_table(settings.target, loaded)
    columns = [
        f"{quoted(column.name)} {column.type}{' NOT NULL' if column.is_not_null else ''}"
        for column in written_columns(settings)
    ]
    if key := primary_key_columns(settings):
        columns.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    fix = f"set create_table: true, or CREATE TABLE {quoted_table(settings.target)} ({', '.join(columns)});"
    return Mismatch(str(settings.target), "a table", "no such table", fix)


def _lost_table(target: TargetSettings, loaded: Sequence[LoadedRows]) -> Mismatch:
    expected = f"the table into which rows were loaded by {'; '.join(map(str, loaded))}"
    resets = "; ".join(change_command(rows.pipeline, "reset --to earliest") for rows in loaded)
    fix = (
        f"rename or restore it, as it was; or load what Kafka still holds into a new one: {resets}; "
        "or name another table in the pipeline file and change-target"
    )
    return Mismatch(str(target), expected, "no such table", fix)


def weaknesses(settings: BatchSettings, table: CatalogTable) -> Iterator[Mismatch]:
    """Yield what does not prevent loading, but lets batches or reloads fail, makes them slow, or changes other tables.

    A reload of an upsert target reads the whole table: an index for it would slow down every batch.
    """
    yield from (
        upsert_weaknesses(settings, settings.upsert, table) if settings.upsert else _append_weaknesses(settings, table)
    )
    what = "a delete or reload" if settings.upsert else "a reload or roll-back"
    for key in table.dependents:
        found = f"ON DELETE {key.action}: {what} changes rows of {key.relation}"
        fix = f"ALTER TABLE {key.relation} DROP CONSTRAINT {quoted(key.name)}; or make it DEFERRABLE INITIALLY DEFERRED"
        yield Mismatch(f"foreign key {key.name}", "no action on DELETE", found, f"{fix} without an action")


def _append_weaknesses(settings: BatchSettings, table: CatalogTable) -> Iterator[Mismatch]:
    metadata, name, role = settings.metadata, quoted_table(settings.target), table.rights.role
    if not has_index_for_replacing(settings, table):
        fix = f"CREATE INDEX ON {name} USING brin ({quoted(metadata.partition)}, {quoted(metadata.offset)});"
        expected = "an index that finds an offset range"
        yield Mismatch(str(settings.target), expected, "none, so a reload reads the whole table", fix)
    for rule in (hook for hook in table.hooks if hook.is_instead and hook.on_delete):
        found = "a rule ON DELETE DO INSTEAD, so a reload fails"
        yield Mismatch(str(rule), "DELETE that deletes", found, f"DROP RULE {quoted(rule.name)} ON {rule.relation};")
    if not table.rights.delete:
        fix = f"GRANT DELETE ON {name} TO {quoted(role)};"
        yield Mismatch(f"role {role}", f"DELETE on {name}", "not granted, so a reload fails", fix)
    for part in (part for part in table.unidentified_parts if part.deletes):
        found = f"publication {part.deletes} publishes deletes, and there is none: a reload or roll-back fails"
        yield Mismatch(part.name, "a replica identity", found, f"ALTER TABLE {part.name} REPLICA IDENTITY FULL;")


def has_index_for_replacing(settings: BatchSettings, table: CatalogTable) -> bool:
    """Tell whether some index finds the rows of an offset range: its key holds partition and offset."""
    wanted = {settings.metadata.partition, settings.metadata.offset}
    return any(index.has_all_rows and wanted <= set(index.columns) for index in table.indexes)


def _column_can_hold(column: CatalogColumn, written: TargetColumn, *, identifies: bool) -> bool:
    """Tell whether the column keeps every value that it does not refuse; a refused one becomes a dead letter.

    A domain holds what its type holds. An enum and citext hold text as it is, except in columns that identify rows:
    citext takes two topics or keys for one, and an enum cannot be compared with text.
    """
    if column.text_like and not identifies:
        return can_hold("text", written.type)
    return can_hold(column.domain_over or column.type, written.type)


def _table_mismatches(settings: BatchSettings, table: CatalogTable) -> Iterator[Mismatch]:
    if table.persistence != "p":
        fix = f"ALTER TABLE {quoted_table(settings.target)} SET LOGGED;"
        yield Mismatch(str(settings.target), "a logged table", "an unlogged table, which a crash empties", fix)
    for name in table.unlogged_parts:
        fix = f"ALTER TABLE {name} SET LOGGED;"
        yield Mismatch(f"partition {name}", "a logged table", "an unlogged table, which a crash empties", fix)
    for rule in (hook for hook in table.hooks if hook.is_instead and hook.on_insert):
        fix = f"DROP RULE {quoted(rule.name)} ON {rule.relation};"
        yield Mismatch(str(rule), "no rule that takes the place of INSERT", "a rule ON INSERT DO INSTEAD", fix)
    reserved = sorted(STAGING_COLUMNS & {column.name for column in table.columns})
    for name in reserved:
        fix = rename_column(settings.target, name, f"{name}_")
        yield Mismatch(f"column {name}", "no column of this name, staging uses it", "it is there", fix)


def _column_mismatches(
    settings: BatchSettings, table: CatalogTable, loaded: Sequence[LoadedRows]
) -> Iterator[Mismatch]:
    alter = f"ALTER TABLE {quoted_table(settings.target)}"
    identifying = {*unique_key_columns(settings), settings.metadata.batch_id, *settings.never_null}
    for written in written_columns(settings):
        column = table.column(written.name)
        if column is None:
            fix = f"{alter} ADD COLUMN {quoted(written.name)} {written.type};"
            if loaded and written.name in unique_key_columns(settings):
                rename = f"{alter} RENAME COLUMN ... TO {quoted(written.name)};"
                fix = f"name it as it was: {rename} never ADD COLUMN, loaded rows are found by it ({loaded[0]})"
            yield Mismatch(f"column {written.name}", written.type, "no such column", fix)
            continue
        yield from _written_column_mismatches(alter, written, column, identifies=written.name in identifying)


def _written_column_mismatches(
    alter: str, written: TargetColumn, column: CatalogColumn, *, identifies: bool
) -> Iterator[Mismatch]:
    subject, name = f"column {written.name}", quoted(written.name)
    if not _column_can_hold(column, written, identifies=identifies):
        domain = f"{column.type}, a domain over {column.domain_over}" if column.domain_over else column.type
        fix = f"{alter} ALTER COLUMN {name} TYPE {written.type} USING {name}::{written.type};"
        yield Mismatch(subject, written.type, domain, fix)
    if column.is_generated:
        fix = f"{alter} ALTER COLUMN {name} DROP EXPRESSION;"
        yield Mismatch(subject, "a column that can be written", "a generated column", fix)
    if column.identity == "a":
        fix = f"{alter} ALTER COLUMN {name} SET GENERATED BY DEFAULT;"
        yield Mismatch(subject, "a column that can be written", "GENERATED ALWAYS AS IDENTITY", fix)


def _other_column_mismatches(settings: BatchSettings, table: CatalogTable) -> Iterator[Mismatch]:
    written = {column.name for column in written_columns(settings)}
    for column in table.columns:
        if column.name not in written and not column.is_filled_by_postgres:
            fix = f"ALTER TABLE {quoted_table(settings.target)} ALTER COLUMN {quoted(column.name)} DROP NOT NULL;"
            expected = "NULL allowed, or a default: the pipeline does not fill it"
            yield Mismatch(f"column {column.name}", expected, f"{column.type} NOT NULL without a default", fix)


def unique_key_columns(settings: BatchSettings) -> tuple[str, str, str, str]:
    """Return the columns of a record's identity in the order of the unique key."""
    metadata = settings.metadata
    return (metadata.topic, metadata.generation, metadata.partition, metadata.offset)


def primary_key_columns(settings: BatchSettings) -> tuple[str, ...]:
    """Return the columns of a created table's primary key; none where it has no such key."""
    if settings.upsert:
        return settings.upsert.key
    return unique_key_columns(settings) if settings.target.unique_key else ()


def _unique_key_mismatches(settings: BatchSettings, table: CatalogTable) -> Iterator[Mismatch]:
    key = unique_key_columns(settings)
    is_there = any(index.is_unique and index.has_all_rows and index.is_over(key) for index in table.indexes)
    if settings.target.unique_key and not is_there:
        names = ", ".join(quoted(name) for name in key)
        fix = f"ALTER TABLE {quoted_table(settings.target)} ADD UNIQUE ({names});"
        yield Mismatch("unique key", f"a unique index on ({names})", "none", fix)


def _table_right_mismatches(settings: BatchSettings, table: CatalogTable) -> Iterator[Mismatch]:
    rights, name, role = table.rights, quoted_table(settings.target), quoted(table.rights.role)
    schema, is_upsert = quoted(settings.target.schema), settings.upsert is not None
    deletes = settings.upsert is not None and settings.upsert.key != unique_key_columns(settings)  # no history does
    names = {column.name for column in written_columns(settings)}
    written = [column for column in table.columns if column.name in names]
    insert = rights.insert or all(column.can_insert for column in written)
    update = rights.update or all(column.can_update for column in written)
    yield from _not_granted(
        rights,
        (rights.use_schema, "USAGE", f"SCHEMA {schema}"),
        (rights.select, "SELECT", name),
        (insert, "INSERT", name),
        (update or not is_upsert, "UPDATE", name),
        (rights.delete or not deletes, "DELETE", name),
    )
    if rights.row_security_applies or (is_upsert and rights.row_security_of_updates):
        commands = "SELECT, INSERT, UPDATE and DELETE" if is_upsert else "SELECT, INSERT and DELETE"
        found = (
            "row-level security applies to it and can hide rows that must be replaced, or refuse new ones: "
            f"no permissive policy says true for {commands}, or a restrictive one says something else"
        )
        fix = f"CREATE POLICY kafka_ingest ON {name} TO {role} USING (true);"
        yield Mismatch(f"role {rights.role}", "every row visible", found, fix)


def _used_right_mismatches(settings: BatchSettings, table: CatalogTable) -> Iterator[Mismatch]:
    """Yield rights on what defaults, CHECKs, domains and indexes use; a default counts where no value is written."""
    written = {column.name for column in written_columns(settings)}
    for column, right, thing in table.missing_rights:
        if column not in written:
            yield from _not_granted(table.rights, (False, right, thing))


def owner_mismatches(table: CatalogTable) -> Iterator[Mismatch]:
    """Yield what the role would have to own to add columns: ALTER TABLE cannot be granted."""
    role = table.rights.role
    for name, owner in table.foreign_parts:
        fix = f"ALTER TABLE {name} OWNER TO {quoted(role)}; or GRANT {quoted(owner)} TO {quoted(role)};"
        expected = f"the owner of {name}, to add columns (new_fields: add_column)"
        yield Mismatch(f"role {role}", expected, f"its owner is {owner}", fix)


def taken_mismatches(target: TargetSettings, written: TargetColumn, column: CatalogColumn) -> Iterator[Mismatch]:
    """Yield why a column that is there already cannot take the values of a field that most records may lack."""
    alter = f"ALTER TABLE {quoted_table(target)}"
    yield from _written_column_mismatches(alter, written, column, identifies=False)
    if column.is_not_null:
        fix = f"{alter} ALTER COLUMN {quoted(written.name)} DROP NOT NULL;"
        yield Mismatch(f"column {written.name}", "NULL allowed: records can lack the field", "NOT NULL", fix)


def _staging_right_mismatches(table: CatalogTable) -> Iterator[Mismatch]:
    rights = table.rights
    yield from _not_granted(
        rights,
        (rights.make_temporary_tables, "TEMPORARY", f"DATABASE {quoted(rights.database)}"),
        (rights.use_staging_schema, "USAGE, CREATE", "SCHEMA kafka_ingest_staging"),
    )


def _not_granted(rights: Rights, *wanted: tuple[bool, str, str]) -> Iterator[Mismatch]:
    for is_granted, right, thing in wanted:
        if not is_granted:
            fix = f"GRANT {right} ON {thing} TO {quoted(rights.role)};"
            yield Mismatch(f"role {rights.role}", f"{right} on {thing}", "not granted", fix)


# ----------
# The target table: created if the pipeline says so, and checked against the settings before anything is loaded.

_LOG = logging.getLogger(__name__)

#: Ends of a concurrent CREATE; the table is then there, and is checked like any other.
_CREATED_BY_ANOTHER = {
    errorcodes.DUPLICATE_SCHEMA,
    errorcodes.DUPLICATE_TABLE,
    errorcodes.DUPLICATE_OBJECT,
    errorcodes.UNIQUE_VIOLATION,
}


class PostgresTarget:
    """The port ``Target`` on PostgreSQL.

    Args:
        params: Keyword arguments of ``psycopg2.connect``.
        sessions: Source of its connections; by default a new one for every call.
    """

    def __init__(self, params: Mapping[str, object], *, sessions: Sessions | None = None) -> None:
        self._sessions = sessions or NewSessions(params)

    def prepare(self, settings: BatchSettings) -> None:
        """Create the table where the settings say so and nothing was loaded into it yet, and check it.

        Created tables are logged and have a BRIN index on partition and offset, or a primary key: the key of an upsert
        target, or the record's identity with ``unique_key``. Two calls, one after the other or at once, give the same
        table. An existing table is never altered.

        The same goes for the history, where the settings name one.

        Raises:
            TargetMismatch: Every mismatch at once, each with the statement that removes it.
            DatabaseUnavailable: The server cannot be reached.
            ConfigError: The role may not create the schema or the table.
        """
        if settings.history:
            self.prepare(history_settings(settings))
        target = settings.target
        with (
            self._sessions.use("kafka_ingest prepare target") as connection,
            database_faults(f"prepare the table {target}"),
        ):
            table, loaded = _read(connection, settings)
            if table is None and target.create_table and not loaded:
                _create(connection, settings)
                table, loaded = _read(connection, settings)
        _warn(settings, _require_match(settings, table, loaded))

    def require_versions(self, settings: BatchSettings) -> None:
        """Refuse rows that no record has written: nothing tells whether a record is newer, and no log brings them back.

        Reads the whole table.

        Raises:
            TargetMismatch: There are such rows; the message has their number.
            DatabaseUnavailable: The server cannot be reached.
        """
        target, names = settings.target, target_identifiers(settings.target, settings.metadata.identity)
        with (
            self._sessions.use("kafka_ingest read target") as connection,
            database_faults(f"read the table {target}"),
            transaction(connection) as cursor,
        ):
            run_query(cursor, "count_rows_without_version", names)
            [(rows,)] = cursor.fetchall()
        if rows:
            raise _without_version(settings, rows)

    def require_replaceable(self, settings: BatchSettings) -> None:
        """Refuse a table whose place a new one cannot take.

        Raises:
            TargetMismatch: Lists what a new table would not have, or what holds the old one.
            DatabaseUnavailable: The server cannot be reached.
        """
        doing = database_faults(f"read the table {settings.target}")
        with self._sessions.use("kafka_ingest read target") as connection, doing, transaction(connection) as cursor:
            require_replaceable(cursor, settings)

    def shape(self, settings: BatchSettings) -> TargetShape:
        """Describe the target as staging needs it.

        Columns carry the types that the pipeline writes, which the table's types can hold, and the table's own NOT
        NULLs. CHECKs name everything outside ``pg_catalog`` with its schema.

        Raises:
            TargetMismatch: The table does not fit the settings (any more).
        """
        target = settings.target
        with self._sessions.use("kafka_ingest read target") as connection, database_faults(f"read the table {target}"):
            table, loaded = _read(connection, settings)
        return _shape(settings, _require_match(settings, table, loaded))


def _read(connection: Any, settings: BatchSettings) -> tuple[CatalogTable | None, tuple[LoadedRows, ...]]:
    with transaction(connection) as cursor:
        table = read_table(cursor, settings.target)
        return table, read_loaded_rows(cursor, settings, table)


def _create(connection: Any, settings: BatchSettings) -> None:
    try:
        with transaction(connection) as cursor:
            run_query(cursor, "lock_table_creation")
            _create_schema(cursor, settings.target.schema)
            run_query(cursor, "create_target_table", _table_identifiers(settings))
            if not primary_key_columns(settings):
                run_query(cursor, "create_target_range_index", _index_identifiers(settings))
    except psycopg2.Error as error:
        if error.pgcode not in _CREATED_BY_ANOTHER:
            raise
        _LOG.info("Table %s was created by another session meanwhile", settings.target)
    else:
        _LOG.info("Created table %s", settings.target)


def _create_schema(cursor: Any, schema: str) -> None:
    run_query(cursor, "schema_exists", schema=schema)
    if not cursor.fetchone()[0]:
        run_query(cursor, "create_target_schema", {"schema": sql.Identifier(schema)})


def _table_identifiers(settings: BatchSettings) -> Identifiers:
    definitions = [column_definition(column) for column in written_columns(settings)]
    if columns := primary_key_columns(settings):
        key = sql.SQL(", ").join(map(sql.Identifier, columns))
        definitions.append(sql.SQL("PRIMARY KEY ({key})").format(key=key))
    table = sql.Identifier(settings.target.schema, settings.target.table)
    return {"table": table, "columns": sql.SQL(",\n    ").join(definitions)}


def column_definition(column: TargetColumn) -> sql.Composed:
    """Return a column as CREATE TABLE and ALTER TABLE define it."""
    # The type is one of a closed list in its canonical spelling, never text of the pipeline file.
    type_ = sql.SQL(parse_column_type(column.type).sql)
    null = sql.SQL(" NOT NULL" if column.is_not_null else "")
    return sql.SQL("{name} {type}{null}").format(name=sql.Identifier(column.name), type=type_, null=null)


def _index_identifiers(settings: BatchSettings) -> Identifiers:
    return {
        "table": sql.Identifier(settings.target.schema, settings.target.table),
        "partition": sql.Identifier(settings.metadata.partition),
        "offset": sql.Identifier(settings.metadata.offset),
    }


def _require_match(settings: BatchSettings, table: CatalogTable | None, loaded: tuple[LoadedRows, ...]) -> CatalogTable:
    missing = missing_table(settings, loaded)
    if table is None and loaded:
        raise TargetMismatch(
            f"the table {settings.target} is gone, and what was loaded into it",
            expected=missing.expected,
            found=missing.found,
            next_command=missing.fix,
        )
    found = mismatches(settings, table, loaded) if table else (missing,)
    if table is None or found:
        raise TargetMismatch(
            f"the table {settings.target} does not fit the pipeline",
            expected="the columns, types and rights that the pipeline needs",
            found="".join(f"\n    {mismatch}" for mismatch in found),
            next_command="run the statements above or correct the pipeline file, then run the task again",
        )
    return table


def _without_version(settings: BatchSettings, rows: int) -> TargetMismatch:
    return TargetMismatch(
        f"the table {settings.target} has rows that no record has written",
        expected=f"no row with NULL in {', '.join(map(quoted, unique_key_columns(settings)))}, its version",
        found=f"{rows} rows without a version",
        next_command="empty the table; or name a new one under target.table, into which the topic is loaded; or leave "
        "these rows to the pipeline that writes them",
    )


def _warn(settings: BatchSettings, table: CatalogTable) -> None:
    for weakness in weaknesses(settings, table):
        _LOG.warning("Target table: %s", weakness)


def _shape(settings: BatchSettings, table: CatalogTable) -> TargetShape:
    """Leave out what staging must not judge: what only the target fills, and everything that a trigger may change."""
    written = written_columns(settings)
    not_null = {column.name for column in table.columns if column.is_not_null and not table.changes_rows}
    names = {column.name for column in written}
    unknown = table.columns_without_value(names, may_stand=settings.upsert is not None)
    checks = () if table.changes_rows else tuple(c for c in table.checks if not unknown.intersection(c.columns))
    return TargetShape(tuple(TargetColumn(c.name, c.type, c.name in not_null) for c in written), checks)
