"""The target table: created where the pipeline says so, and checked against the settings before anything is loaded."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import psycopg2
from psycopg2 import errorcodes, sql

from kafka_ingest.adapters.postgres_connection import database_faults, transaction
from kafka_ingest.adapters.postgres_sessions import NewSessions, Sessions
from kafka_ingest.adapters.sql_files import sql_text
from kafka_ingest.adapters.target_catalog import CatalogTable, LoadedRows, read_loaded_rows, read_table
from kafka_ingest.adapters.target_checks import (
    mismatches,
    missing_table,
    unique_key_columns,
    weaknesses,
)
from kafka_ingest.core.column_types import parse_column_type
from kafka_ingest.core.errors import TargetMismatch
from kafka_ingest.core.settings import BatchSettings
from kafka_ingest.core.target_shape import TargetColumn, TargetShape, written_columns

_LOG = logging.getLogger(__name__)

#: What a concurrent CREATE can end in; the table is then there, and is checked like any other.
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
        sessions: Gives its connections; by default a new one for every call.
    """

    def __init__(self, params: Mapping[str, object], *, sessions: Sessions | None = None) -> None:
        self._sessions = sessions or NewSessions(params)

    def prepare(self, settings: BatchSettings) -> None:
        """Creates the table where the settings say so and nothing was loaded into it yet, and checks it.

        Created tables are logged and have a BRIN index on partition and offset, or a primary key on the record's
        identity with ``unique_key``. Running it twice, or two at once, gives the same table. An existing table is
        never altered.

        Raises:
            TargetMismatch: Every mismatch at once, each with the statement that removes it.
            DatabaseUnavailable: The server cannot be reached.
            ConfigError: The role may not create the schema or the table.
        """
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

    def shape(self, settings: BatchSettings) -> TargetShape:
        """Describes the target as staging must know it.

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
            cursor.execute(sql_text("queries/lock_table_creation"))
            _create_schema(cursor, settings.target.schema)
            cursor.execute(_create_table_statement(settings))
            if not settings.target.unique_key:
                cursor.execute(_create_index_statement(settings))
    except psycopg2.Error as error:
        if error.pgcode not in _CREATED_BY_ANOTHER:
            raise
        _LOG.info("Table %s was created by another session meanwhile", settings.target)
    else:
        _LOG.info("Created table %s", settings.target)


def _create_schema(cursor: Any, schema: str) -> None:
    cursor.execute(sql_text("queries/schema_exists"), {"schema": schema})
    if not cursor.fetchone()[0]:
        cursor.execute(sql.SQL(sql_text("queries/create_target_schema")).format(schema=sql.Identifier(schema)))


def _create_table_statement(settings: BatchSettings) -> sql.Composed:
    definitions = [_definition(column) for column in written_columns(settings)]
    if settings.target.unique_key:
        key = sql.SQL(", ").join(map(sql.Identifier, unique_key_columns(settings)))
        definitions.append(sql.SQL("PRIMARY KEY ({key})").format(key=key))
    return sql.SQL(sql_text("queries/create_target_table")).format(
        table=sql.Identifier(settings.target.schema, settings.target.table),
        columns=sql.SQL(",\n    ").join(definitions),
    )


def _definition(column: TargetColumn) -> sql.Composed:
    # The type is one of a closed list in its canonical spelling, never text of the pipeline file.
    type_ = sql.SQL(parse_column_type(column.type).sql)
    null = sql.SQL(" NOT NULL" if column.is_not_null else "")
    return sql.SQL("{name} {type}{null}").format(name=sql.Identifier(column.name), type=type_, null=null)


def _create_index_statement(settings: BatchSettings) -> sql.Composed:
    return sql.SQL(sql_text("queries/create_target_range_index")).format(
        table=sql.Identifier(settings.target.schema, settings.target.table),
        partition=sql.Identifier(settings.metadata.partition),
        offset=sql.Identifier(settings.metadata.offset),
    )


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


def _warn(settings: BatchSettings, table: CatalogTable) -> None:
    for weakness in weaknesses(settings, table):
        _LOG.warning("Target table: %s", weakness)


def _shape(settings: BatchSettings, table: CatalogTable) -> TargetShape:
    """Leaves out what staging must not judge: what only the target fills, and everything that a trigger may change."""
    written = written_columns(settings)
    not_null = {column.name for column in table.columns if column.is_not_null and not table.changes_rows}
    unknown = table.columns_without_value({column.name for column in written})
    checks = () if table.changes_rows else tuple(c for c in table.checks if not unknown.intersection(c.columns))
    return TargetShape(tuple(TargetColumn(c.name, c.type, c.name in not_null) for c in written), checks)
