"""Columns that loads add to targets (``new_fields: add_column``), and the ledger's record of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing

import psycopg2
from psycopg2 import sql

from kafka_ingest.errors import TargetMismatch
from kafka_ingest.postgres.catalog import CatalogTable
from kafka_ingest.postgres.database import (
    Cursor,
    TransactionLimits,
    connect,
    database_faults,
    ingest_error,
    run_query,
    server_message,
    transaction,
)
from kafka_ingest.postgres.publisher import lock_batch
from kafka_ingest.postgres.refusals import fenced
from kafka_ingest.postgres.rows import load_added_columns
from kafka_ingest.postgres.staging_tables import existing_target
from kafka_ingest.postgres.target import column_definition, owner_mismatches, taken_mismatches
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.new_columns import ColumnsBefore, columns_for
from kafka_ingest.protocol.publish import owns
from kafka_ingest.protocol.staging import NewField
from kafka_ingest.protocol.target import AddedColumn, TargetColumn
from kafka_ingest.settings import TargetSettings

#: Whoever waits for the table's lock keeps all others waiting behind it, readers too: not for long. A retry of the load
#: asks again.
_LIMITS = TransactionLimits(lock_timeout_seconds=5)


class PostgresSchemaEvolution:
    """The port ``SchemaEvolution`` on PostgreSQL.

    Locks: batch, then the target.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; secrets stay in here.
        limits: Time-outs of the transaction.
    """

    def __init__(self, params: Mapping[str, object], limits: TransactionLimits = _LIMITS) -> None:
        self._params = params
        self._limits = limits

    def add_columns(self, batch: Batch, fields: Sequence[NewField]) -> tuple[AddedColumn, ...]:
        """Make and record a column for each field, in one transaction; all or none. Durable on return.

        Raises:
            Fenced: The batch is not planned, or its claim is not ours: nothing was altered.
            Busy: Another session has the batch row locked.
            SchemaChangeRefused: A name is not free, or a limit would be passed.
            TargetMismatch: The table does not let columns be added, or has one that cannot hold the values.
            LockTimeout: Others use the table for too long.
            CommitStateUnknown: The answer to COMMIT was lost; the next claim reads what became of it.
        """
        with (
            closing(connect(self._params, application_name="kafka_ingest add columns")) as connection,
            database_faults(f"add columns to {batch.settings.target}"),
            transaction(connection, self._limits) as cursor,
        ):
            if not owns(lock_batch(cursor, batch, self._limits), batch):
                raise fenced(batch, "state committed")
            return _add_columns(cursor, batch, fields)


def _add_columns(cursor: Cursor, batch: Batch, fields: Sequence[NewField]) -> tuple[AddedColumn, ...]:
    target = batch.settings.target
    columns, missing = _wanted(cursor, batch, fields)
    if missing:
        _lock_target(cursor, target)
        # Before the lock somebody else may have altered the table, too.
        columns, missing = _wanted(cursor, batch, fields)
    if missing:
        _alter(cursor, target, missing)
    _record(cursor, batch, columns, missing)
    return columns


def _wanted(
    cursor: Cursor, batch: Batch, fields: Sequence[NewField]
) -> tuple[tuple[AddedColumn, ...], tuple[AddedColumn, ...]]:
    """Return the columns of the fields, and those of them that the table does not have."""
    target = batch.settings.target
    recorded = load_added_columns(cursor, batch.pipeline, target)
    table = existing_target(cursor, target)
    names = {column.name for column in table.columns}
    of_batch = sum(batch_id == batch.batch_id for batch_id in recorded.values())
    columns = columns_for(fields, batch.settings, ColumnsBefore(names, len(recorded), of_batch))
    missing = tuple(column for column in columns if column.name not in names)
    _require_room(target, table, columns, alters=bool(missing))
    return columns, missing


def _require_room(target: TargetSettings, table: CatalogTable, columns: Sequence[AddedColumn], *, alters: bool) -> None:
    """Refuse columns that are there and cannot hold the values, and a table that is not the role's to alter."""
    found = list(owner_mismatches(table)) if alters else []
    for column in columns:
        if there := table.column(column.name):
            found += taken_mismatches(target, _written(column), there)
    if found:
        raise _not_added(target, "".join(f"\n    {mismatch}" for mismatch in found), "run the statements above")


def _written(column: AddedColumn) -> TargetColumn:
    return TargetColumn(column.name, column.type, is_not_null=False)


def _lock_target(cursor: Cursor, target: TargetSettings) -> None:
    run_query(cursor, "lock_target_table", {"target": sql.Identifier(target.schema, target.table)})


def _alter(cursor: Cursor, target: TargetSettings, columns: Sequence[AddedColumn]) -> None:
    additions = [sql.SQL("ADD COLUMN ") + column_definition(_written(column)) for column in columns]
    names = {
        "target": sql.Identifier(target.schema, target.table),
        "additions": sql.SQL(",\n    ").join(additions),
    }
    try:
        run_query(cursor, "add_target_columns", names)
    except psycopg2.Error as error:
        # Such as: it is a partition itself, a child has a column of that name and another type, 1,600 columns.
        fault = ingest_error(error, f"add columns to {target}")
        raise fault or _not_added(target, server_message(error), "remove the cause") from error


def _not_added(target: TargetSettings, found: str, cure: str) -> TargetMismatch:
    return TargetMismatch(
        f"columns for new fields cannot be added to {target}; nothing was altered or published",
        expected="a table of the role's own, whose columns of these names can hold the values",
        found=found,
        next_command=f"{cure}, or choose another value.new_fields in the pipeline file, then run the task again",
    )


def _record(cursor: Cursor, batch: Batch, columns: Sequence[AddedColumn], missing: Sequence[AddedColumn]) -> None:
    target, policy = batch.settings.target, "value.new_fields: add_column"
    run_query(
        cursor,
        "insert_schema_changes",
        pipeline=batch.pipeline,
        target_schema=target.schema,
        target_table=target.table,
        batch_id=batch.batch_id,
        claim=batch.claim,
        who=str(batch.request),
        name=[column.name for column in columns],
        type=[column.type for column in columns],
        path=[json.dumps(column.path) for column in columns],
        why=[policy if column in missing else f"{policy}; the table had the column" for column in columns],
    )
