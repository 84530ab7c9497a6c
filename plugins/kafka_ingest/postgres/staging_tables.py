"""Staging tables: create, fill, drop; find and delete those that killed attempts left behind."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
from psycopg2 import errorcodes, sql

from kafka_ingest.errors import TargetMismatch
from kafka_ingest.postgres.catalog import CatalogColumn, CatalogTable, read_table
from kafka_ingest.postgres.database import (
    Connection,
    Cursor,
    Identifiers,
    TransactionLimits,
    connect,
    database_faults,
    fetch_row,
    fetch_rows,
    run_query,
    server_message,
    transaction,
)
from kafka_ingest.postgres.migrations import require_current_ledger
from kafka_ingest.protocol.batch import Batch, BatchState
from kafka_ingest.protocol.housekeeping import StagingTable
from kafka_ingest.protocol.staging import StageProgress, staging_name
from kafka_ingest.protocol.target import delete_settings, written_columns
from kafka_ingest.settings import TargetSettings

# Staging tables of one attempt: made by the driver, filled by tasks, read by publishing, dropped afterwards.

_LOG = logging.getLogger(__name__)

STAGING_SCHEMA = "kafka_ingest_staging"

#: A running or hanging attempt still uses its tables: housekeeping drops them later. A COPY starts within 2 s.
DROP_LIMITS = TransactionLimits(lock_timeout_seconds=2)
#: In use, or owned by another role: it stays.
STAYS = {errorcodes.LOCK_NOT_AVAILABLE, errorcodes.DEADLOCK_DETECTED, errorcodes.INSUFFICIENT_PRIVILEGE}


def staging_table(stem: str, part: str) -> sql.Identifier:
    """Return the identifier of a staging table.

    Args:
        stem: From :func:`kafka_ingest.protocol.staging.staging_name`.
        part: ``rows``, ``partial`` (rows with values that did not travel), ``letters`` (what becomes of these where
            nobody knows the values), ``deletes``, ``dead_letters``, ``counted`` or ``progress``.
    """
    return sql.Identifier(STAGING_SCHEMA, f"{stem}_{part}")


class PostgresStaging:
    """The port ``Staging`` on PostgreSQL.

    Args:
        params: Keyword arguments of ``psycopg2.connect``.
    """

    def __init__(self, params: Mapping[str, object]) -> None:
        self._params = params

    def create(self, batch: Batch) -> None:
        """Create the tables of the batch's claim, after dropping unused ones of older claims.

        Tables that exist keep their rows. Durable on return, until the server crashes: they are unlogged.

        Raises:
            TargetMismatch: The target is gone.
            DatabaseUnavailable: The server cannot be reached.
        """
        doing = f"create staging tables for {batch.settings.target}"
        with closing(self._connect()) as connection, database_faults(doing):
            _drop_tables(connection, batch, up_to_claim=batch.claim - 1)
            with transaction(connection) as cursor:
                create_staging_tables(cursor, batch)

    def progress(self, batch: Batch) -> StageProgress:
        """Sum what the tasks of the batch's claim have staged so far; zero while there are no tables."""
        stem = staging_name(batch.batch_id, batch.claim)
        with closing(self._connect()) as connection, database_faults("read the progress of staging"):
            try:
                with transaction(connection) as cursor:
                    run_query(cursor, "staging_progress", {"progress": staging_table(stem, "progress")})
                    return StageProgress(*cursor.fetchall()[0])
            except psycopg2.Error as error:
                if error.pgcode != errorcodes.UNDEFINED_TABLE:
                    raise
                return StageProgress()

    def places(self, batch: Batch) -> Sequence[str]:
        """Return the records that running tasks of the batch's claim last reported as their place."""
        stem = staging_name(batch.batch_id, batch.claim)
        faults = database_faults("read where staging is")
        with closing(self._connect()) as connection, faults, transaction(connection) as cursor:
            run_query(cursor, "staging_places", {"progress": staging_table(stem, "progress")})
            rows = cursor.fetchall()
        return [f"{topic}[{partition}] offsets [{first}, {end})" for topic, partition, first, end in rows]

    def drop(self, batch: Batch) -> None:
        """Drop the tables of the batch's claim and of older ones; those in use stay, and the log names them."""
        with closing(self._connect()) as connection, database_faults("drop staging tables"):
            _drop_tables(connection, batch, up_to_claim=batch.claim)

    def _connect(self) -> Any:
        return connect(self._params, application_name="kafka_ingest staging")


def create_staging_tables(cursor: Cursor, batch: Batch) -> None:
    """Create the tables of the batch's claim in a transaction.

    Raises:
        TargetMismatch: The target is gone.
    """
    stem, table = staging_name(batch.batch_id, batch.claim), existing_target(cursor, batch.settings.target)
    for part in ("dead_letters", "progress", *_counted(batch)):
        run_query(cursor, f"create_staging_{part}", {part: staging_table(stem, part)})
    _create_rows(cursor, stem, batch, table)
    if batch.settings.upsert:
        _create_changes(cursor, stem, batch, table)


def drop_staging_tables(cursor: Cursor, batch: Batch) -> None:
    """Drop the tables that :func:`create_staging_tables` has made in the same transaction."""
    stem = staging_name(batch.batch_id, batch.claim)
    changes = ("partial", "letters", "deletes") if batch.settings.upsert else ()
    for part in ("rows", *changes, "dead_letters", "progress", *_counted(batch)):
        run_query(cursor, "drop_staging_table", {"staging_table": staging_table(stem, part)})


def _counted(batch: Batch) -> Sequence[str]:
    """Return the table of counted offsets where rows are replaced: it tells these offsets from lost ones."""
    return ("counted",) if any(r.replaced_to > r.start for r in batch.ranges) else ()


def existing_target(cursor: Any, target: TargetSettings) -> CatalogTable:
    """Read the target of a batch.

    Raises:
        TargetMismatch: It is gone.
    """
    table = read_table(cursor, target)
    if table is None:
        raise TargetMismatch(
            f"the table {target} is gone since the batch was planned",
            expected="the table",
            found="no such table",
            next_command="clear plan_batch: it creates the table, or says what must be there",
        )
    return table


def _create_rows(cursor: Any, stem: str, batch: Batch, table: CatalogTable) -> None:
    rows, target = staging_table(stem, "rows"), batch.settings.target
    names: Identifiers = {
        "rows": rows,
        "target": sql.Identifier(target.schema, target.table),
        "constraints": sql.SQL("EXCLUDING CONSTRAINTS" if table.changes_rows else "INCLUDING CONSTRAINTS"),
    }
    run_query(cursor, "create_staging_rows", names)
    written = {column.name for column in written_columns(batch.settings)}
    without_value = table.columns_without_value(written, may_stand=batch.settings.upsert is not None)
    for name in sorted(without_value):
        run_query(cursor, "drop_staging_column", {"rows": rows, "column": sql.Identifier(name)})
    for column in table.columns:
        if column.name not in without_value and (table.changes_rows or _is_freed(column, written)):
            run_query(cursor, "free_staging_column", {"rows": rows, "column": sql.Identifier(column.name)})


def _create_changes(cursor: Any, stem: str, batch: Batch, table: CatalogTable) -> None:
    """Create the tables of deletes, which have the columns of key and version, and of rows that are not whole.

    Both have the target's types, and no NOT NULL.
    """
    target, settings = batch.settings.target, batch.settings
    for part, of in (("deletes", delete_settings(settings)), ("partial", settings)):
        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in written_columns(of))
        names: Identifiers = {
            part: staging_table(stem, part),
            "target": sql.Identifier(target.schema, target.table),
            "columns": columns,
        }
        run_query(cursor, f"create_staging_{part}", names)
    run_query(cursor, "create_staging_dead_letters", {"dead_letters": staging_table(stem, "letters")})
    written = {column.name for column in written_columns(settings)}
    for check in table.checks if not table.changes_rows else ():
        if written.issuperset(check.columns):
            names = {
                "partial": staging_table(stem, "partial"),
                "constraint": sql.Identifier(check.name),
                "columns_read": sql.SQL("ARRAY[{}]::text[]").format(
                    sql.SQL(", ").join(map(sql.Literal, check.columns))
                ),
                "expression": sql.SQL(check.expression),
            }
            run_query(cursor, "check_staged_partial", names)


def _is_freed(column: CatalogColumn, written: Collection[str]) -> bool:
    return column.name not in written and not column.is_generated


def _drop_tables(connection: Any, batch: Batch, *, up_to_claim: int) -> None:
    pattern = f"^{staging_name(batch.batch_id, 0).removesuffix('0')}([0-9]+)_"
    with transaction(connection) as cursor:
        run_query(cursor, "staging_tables_of_batch", pattern=pattern, claim=up_to_claim)
        names = [name for (name,) in cursor.fetchall()]
    for name in names:
        if reason := drop_staging_table(connection, name):
            _LOG.warning("Staging table %s.%s stays until housekeeping drops it: %s", STAGING_SCHEMA, name, reason)


def drop_staging_table(connection: Connection, name: str, limits: TransactionLimits = DROP_LIMITS) -> str:
    """Drop one staging table in a transaction of its own; a missing one is no fault.

    Returns:
        Why it stays: it is in use, or owned by another role. Empty when it is gone.
    """
    try:
        with transaction(connection, limits) as cursor:
            run_query(cursor, "drop_staging_table", {"staging_table": sql.Identifier(STAGING_SCHEMA, name)})
    except psycopg2.Error as error:
        if error.pgcode not in STAYS:
            raise
        return server_message(error)
    return ""


class PostgresHousekeeper:
    """The port ``Housekeeper``: tidies one database.

    Args:
        params: Keyword arguments of ``psycopg2.connect``.
        drop_limits: How long to wait for a table that is in use, or an index that is being vacuumed.
    """

    def __init__(self, params: Mapping[str, object], drop_limits: TransactionLimits = DROP_LIMITS) -> None:
        self._params = params
        self._drop_limits = drop_limits

    def staging_tables(self) -> Sequence[StagingTable]:
        """List the staging tables with what the ledger says of their batches, seen at one moment."""
        with self._connection("list staging tables") as connection, transaction(connection) as cursor:
            require_current_ledger(cursor)
            return [
                StagingTable(
                    name=row["name"],
                    batch_id=row["batch_id"],
                    claim=row["claim"],
                    batch_state=BatchState(row["batch_state"]) if row["batch_state"] else None,
                    batch_claim=row["batch_claim"],
                )
                for row in fetch_rows(cursor, "list_staging_tables")
            ]

    def drop_staging_table(self, name: str) -> str:
        """Drop a table, or return the reason why it stays."""
        with self._connection("drop a staging table") as connection:
            return drop_staging_table(connection, name, self._drop_limits)

    def delete_superseded_ranges(self, older_than_days: int, *, is_dry_run: bool) -> int:
        """Delete ranges and return their number; a dry run rolls the deletion back."""
        return self._delete("delete_superseded_ranges", older_than_days, is_dry_run=is_dry_run)

    def delete_old_attempts(self, older_than_days: int, *, is_dry_run: bool) -> int:
        """Delete tries and return their number; a dry run rolls the deletion back."""
        return self._delete("delete_old_attempts", older_than_days, is_dry_run=is_dry_run)

    def _delete(self, query: str, older_than_days: int, *, is_dry_run: bool) -> int:
        with self._connection("delete old details of the ledger") as connection, transaction(connection) as cursor:
            cursor.execute("SAVEPOINT nothing_deleted")
            count = run_query(cursor, query, older_than_days=older_than_days)
            if is_dry_run:
                cursor.execute("ROLLBACK TO SAVEPOINT nothing_deleted")
        return count

    def brin_indexes(self) -> Sequence[str]:
        """List the BRIN indexes of the pipelines' targets and of their partitions, quoted, with their schemas."""
        with self._connection("list BRIN indexes") as connection, transaction(connection) as cursor:
            return [row["index_name"] for row in fetch_rows(cursor, "list_brin_indexes")]

    def summarize(self, index: str) -> int | str:
        """Summarise what is not yet; return the number of page ranges, or the reason why the index was left."""
        with self._connection("summarise a BRIN index") as connection:
            try:
                with transaction(connection, self._drop_limits) as cursor:
                    row = fetch_row(cursor, "summarize_brin_index", index=index)
            except psycopg2.Error as error:
                if error.pgcode not in STAYS:
                    raise
                return server_message(error)
            return row["page_ranges"] if row and row["page_ranges"] is not None else "the index is gone"

    @contextmanager
    def _connection(self, doing: str) -> Iterator[Connection]:
        with (
            closing(connect(self._params, application_name="kafka_ingest housekeeping")) as connection,
            database_faults(doing),
        ):
            yield connection
