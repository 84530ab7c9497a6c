"""What an audit asks the ledger: unannounced batches, and the invariants of ``sql/invariants``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg2
from psycopg2 import sql

from kafka_ingest.adapters.postgres_connection import Cursor
from kafka_ingest.adapters.postgres_rows import (
    Row,
    announcer,
    fetch_row,
    fetch_rows,
    load_batch,
    load_batches,
    pipeline_of,
    query_with_identifiers,
    request_parameters,
    rows_of,
    run_query,
)
from kafka_ingest.adapters.sql_files import sql_names, sql_text
from kafka_ingest.core.batch import Batch, Request
from kafka_ingest.core.errors import TargetMismatch
from kafka_ingest.core.ports import Violation
from kafka_ingest.core.settings import IdentityColumns, TargetSettings
from kafka_ingest.core.table_audit import TARGET_INVARIANT

#: How far back the invariants look. Every audit looks, so each range is seen many times; a bound keeps an audit quick
#: when the ledger has millions of rows. 1,000 batches are six weeks of hourly runs.
_NEWEST_BATCHES = 1_000

#: One fault breaks many rows: so many of an invariant are enough to see which.
_ROWS_PER_INVARIANT = 100


@dataclass(frozen=True, slots=True)
class Audited:
    """What an audit has looked at.

    Attributes:
        batches: How many of the newest committed batches of the ledger.
        oldest: The oldest of them.
        newest: The newest, whose rows were counted in the table.
        ranges: How many ranges that one has.
        not_counted: Ranges of other batches.
    """

    batches: int
    oldest: str | None
    newest: str | None
    ranges: int
    not_counted: int


def audited(cursor: Cursor, pipeline: str) -> Audited:
    """Says what :func:`find_violations` looks at."""
    [row] = fetch_rows(cursor, "audited_batches", pipeline=pipeline, newest_batches=_NEWEST_BATCHES)
    return Audited(**row)


def find_unannounced(cursor: Cursor, pipeline: str, request: Request) -> Sequence[Batch]:
    """Gives committed batches that nobody announced, those that ``request`` announced, and its own; oldest first."""
    rows = fetch_rows(
        cursor,
        "find_unannounced_batches",
        pipeline=pipeline,
        announced_by=announcer(request),
        **request_parameters(request),
    )
    return load_batches(cursor, [row["batch_id"] for row in rows])


def mark_announced(cursor: Cursor, batch_ids: Sequence[str], request: Request) -> None:
    """Stores that ``request`` announces these batches; one that is announced already stays with its announcer."""
    run_query(cursor, "mark_announced", batch_ids=list(batch_ids), announced_by=announcer(request))


def find_violations(cursor: Cursor, pipeline: str) -> list[Violation]:
    """Runs every invariant for a pipeline; the cursor's transaction should be a snapshot.

    Raises:
        TargetMismatch: The target table, or one of its metadata columns, is no longer there.
    """
    found: list[Violation] = []
    for name in sql_names("invariants"):
        if name != TARGET_INVARIANT:
            cursor.execute(sql_text(f"invariants/{name}"), {"pipeline": pipeline, "newest_batches": _NEWEST_BATCHES})
            found += _violations(name, rows_of(cursor, _ROWS_PER_INVARIANT))
    return found + _target_violations(cursor, pipeline)


def _target_violations(cursor: Cursor, pipeline: str) -> list[Violation]:
    newest = fetch_row(cursor, "newest_committed_batch", pipeline=pipeline)
    batch = load_batch(cursor, newest["batch_id"]) if newest else None
    if batch is None or not batch.ranges:
        return []
    try:
        identifiers = target_identifiers(batch.settings.target, _identity(cursor, batch))
        statement = query_with_identifiers(f"invariants/{TARGET_INVARIANT}", **identifiers)
        cursor.execute(statement, {"pipeline": pipeline, "batch_id": batch.batch_id})
    except (psycopg2.errors.UndefinedTable, psycopg2.errors.UndefinedColumn) as error:
        raise target_is_gone(error, batch.settings.target, pipeline) from error
    return _violations(TARGET_INVARIANT, rows_of(cursor, _ROWS_PER_INVARIANT))


def target_is_gone(error: psycopg2.Error, target: TargetSettings, pipeline: str) -> TargetMismatch:
    """Gives the error of a table, or of a column that identifies its rows, that is not there."""
    return TargetMismatch(
        "the target table no longer fits the batches that were loaded into it",
        expected=f"table {target} with its metadata columns",
        found=error.diag.message_primary or "",
        next_command="restore the table or the column, then run python -m kafka_ingest audit",
        pipeline=pipeline,
    )


def _identity(cursor: Cursor, batch: Batch) -> IdentityColumns:
    """Gives the names that the columns have now, of a batch that may have been loaded before they were renamed."""
    bound = fetch_row(cursor, "select_pipeline", pipeline=batch.pipeline)
    record, target = pipeline_of(bound) if bound else None, batch.settings.target
    if record is None or (record.target_schema, record.target_table) != (target.schema, target.table):
        return batch.settings.metadata.identity
    return record.identity


def target_identifiers(target: TargetSettings, identity: IdentityColumns) -> dict[str, sql.Composable]:
    """Gives the identifiers of the target and of the columns that tell a row's identity, for an SQL file."""
    return {
        "target": sql.Identifier(target.schema, target.table),
        "topic": sql.Identifier(identity.topic),
        "generation": sql.Identifier(identity.generation),
        "partition": sql.Identifier(identity.partition),
        "offset_column": sql.Identifier(identity.offset),
    }


def _violations(invariant: str, rows: Sequence[Row]) -> list[Violation]:
    return [Violation(invariant, ", ".join(f"{name} {value}" for name, value in row.items())) for row in rows]
