"""Ledger and target as the commands show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any

import psycopg2

from kafka_ingest.postgres.catalog import target_identifiers, target_is_gone
from kafka_ingest.postgres.database import (
    SNAPSHOT,
    Cursor,
    KeptSession,
    Row,
    TransactionLimits,
    connect,
    database_faults,
    fetch_row,
    fetch_rows,
    transaction,
)
from kafka_ingest.postgres.migrations import require_current_ledger
from kafka_ingest.postgres.rows import PAGE_BYTES, PAGE_RECORDS, choice_parameters, need_of_rebuild, pipeline_of
from kafka_ingest.protocol.audit import FIRST_OFFSETS
from kafka_ingest.protocol.dead_letters import DeadLetterChoice
from kafka_ingest.protocol.ledger_view import PipelineRecord
from kafka_ingest.protocol.ports import AuditScope, Count, Counted, Piece, Place, Written, WrittenBatch
from kafka_ingest.settings import TargetSettings

# Read-only questions to the ledger, for people and scripts. A standby answers them too.

#: One row as column name to value: numbers, text, ``datetime`` with UTC, ``bytes``, lists, ``None``.
ReportRow = dict[str, Any]


class PostgresReports:
    """Lists from the ledger. Every method is one read-only transaction.

    Each raises ``DatabaseUnavailable`` when no server answers, and ``LedgerOutdated`` when the schema is not the one
    of this package.

    Args:
        params: Keyword arguments of ``psycopg2.connect``.
        limits: Time-outs of each transaction.
    """

    def __init__(self, params: Mapping[str, object], limits: TransactionLimits = SNAPSHOT) -> None:
        self._params = params
        self._limits = limits

    def status(self, pipelines: Sequence[str]) -> list[ReportRow]:
        """Return one row for each pipeline, in the order of the names."""
        rows = self._rows("report_status", pipelines=list(pipelines))
        states = [self._state(row["pipeline"], has_keys=row.pop("has_keys")) for row in rows]
        return [{**row, **state} for row, state in zip(rows, states, strict=True)]

    def _state(self, pipeline: str, *, has_keys: bool | None) -> ReportRow:
        """Return what only a table of current state has; nobody counts keys who may not read them."""
        keys = self._rows("count_keys_in_doubt", pipeline=pipeline)[0]["keys"] if has_keys else None
        return {"keys_in_doubt": keys, "needs_rebuild": self._need_of_rebuild(pipeline)}

    def _need_of_rebuild(self, pipeline: str) -> str | None:
        found = self._rows("select_need_of_rebuild", pipeline=pipeline)
        return need_of_rebuild(found[0]) if found else None

    def batches(self, pipeline: str, limit: int) -> list[ReportRow]:
        """Return the newest batches, the newest first."""
        return self._rows("list_batches", pipeline=pipeline, limit=limit)

    def dead_letters(
        self, pipeline: str, choice: DeadLetterChoice, *, is_resolved: bool | None, excerpt: int
    ) -> list[ReportRow]:
        """Return dead letters, those of the newest batch first, with the beginning of their keys and values.

        Args:
            pipeline: Name of the pipeline.
            choice: Which.
            is_resolved: Only resolved ones, or only the others; ``None`` for both.
            excerpt: How many bytes of key and value.
        """
        asked = {"is_resolved": is_resolved, "excerpt": excerpt, "limit": choice.limit}
        return self._rows("list_dead_letters", pipeline=pipeline, **asked, **choice_parameters(choice))

    def dead_letter_counts(
        self, pipeline: str, choice: DeadLetterChoice, *, is_resolved: bool | None
    ) -> list[ReportRow]:
        """Count dead letters by reason and by what became of them, the most frequent first; a limit does not count."""
        parameters = choice_parameters(choice)
        return self._rows("count_dead_letters", pipeline=pipeline, is_resolved=is_resolved, **parameters)

    def all_dead_letters(
        self, pipeline: str, choice: DeadLetterChoice, *, is_resolved: bool | None
    ) -> Iterator[ReportRow]:
        """Yield dead letters with their original bytes, in the order of their identities: any number, in pages."""
        after: Mapping[str, Any] = {"topic": "", "generation": -1, "partition": -1, "offset": -1}
        asked = {"is_resolved": is_resolved, "bytes": PAGE_BYTES, **choice_parameters(choice)}
        left = choice.limit
        while left != 0:
            records = PAGE_RECORDS if left is None else min(left, PAGE_RECORDS)
            place = {f"after_{name}": after[name] for name in ("topic", "generation", "partition", "offset")}
            page = self._rows("export_dead_letters", pipeline=pipeline, records=records, **place, **asked)
            yield from page
            if not page:
                return
            after, left = page[-1], None if left is None else left - len(page)

    def _rows(self, query: str, **parameters: object) -> list[ReportRow]:
        with (
            closing(connect(self._params, application_name="kafka_ingest report", read_only=True)) as connection,
            database_faults("read the ledger"),
            transaction(connection, self._limits) as cursor,
        ):
            require_current_ledger(cursor)
            rows = fetch_rows(cursor, query, **parameters)
        return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    """Turn the driver's buffers into bytes."""
    if isinstance(value, memoryview):
        return bytes(value)
    return [_plain(item) for item in value] if isinstance(value, list) else value


# Ledger and target for an audit of the whole table: port ``WrittenTable``, one short snapshot a method.

#: Batches in a step. Their ranges are in memory: with 1,000 partitions that is 100,000.
_BATCHES = 100


class PostgresWrittenTable:
    """The table that a pipeline is bound to, and the batches that have published into it.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; secrets stay in here.
        pipeline: Name of the pipeline.
    """

    def __init__(self, params: Mapping[str, object], pipeline: str) -> None:
        self._sessions = KeptSession(params)
        self._pipeline = pipeline

    def scope(self) -> AuditScope:
        """Return what there is; nothing before the first plan."""
        with self._snapshot() as cursor:
            require_current_ledger(cursor)
            found = fetch_row(cursor, "table_audit_scope", pipeline=self._pipeline)
            if found is None:
                return AuditScope(0, 0, 0, 0, 0)
            given_up_at = _given_up_at(cursor, self._bound(cursor))
            emptied = fetch_rows(cursor, "select_emptied", pipeline=self._pipeline, given_up_at=given_up_at)
            roll_backs = [(row["newest_before"], _written(row, "a roll-back")) for row in emptied]
            return AuditScope(**found, roll_backs=roll_backs)

    def writers(self, before: int) -> Sequence[WrittenBatch]:
        """Return some batches below an ordinal that have published into the table, newest first."""
        with self._snapshot() as cursor:
            bound = self._bound(cursor)
            rows = fetch_rows(
                cursor,
                "select_published",
                pipeline=self._pipeline,
                schema=bound.target_schema,
                table=bound.target_table,
                before=before,
                batches=_BATCHES,
                given_up_at=_given_up_at(cursor, bound),
            )
        return [
            WrittenBatch(ordinal, [_written(row, f"batch {row['batch_id']}") for row in ranges])
            for ordinal, ranges in groupby(rows, key=itemgetter("ordinal"))
        ]

    def count(self, pieces: Sequence[Piece], scope: AuditScope) -> Count:
        """Count rows in pieces; see the port.

        Raises:
            TargetMismatch: The table, or a column that identifies rows, is not there.
        """
        with self._snapshot() as cursor:
            since = fetch_rows(
                cursor,
                "select_written_since",
                pipeline=self._pipeline,
                newest=scope.newest,
                newest_change=scope.newest_change,
            )
            bound = self._bound(cursor)
            counted = [found for run in _runs(pieces) for found in self._count_run(cursor, bound, run)]
        return Count(counted, [_piece(row) for row in since])

    def name(self, piece: Piece) -> tuple[Sequence[int], Sequence[int]]:
        """Return the first offsets that have two rows, and the first that have neither row nor dead letter."""
        with self._snapshot() as cursor:
            [row] = self._in_target(
                cursor,
                self._bound(cursor),
                "name_offsets",
                **piece.place._asdict(),
                range_start=piece.start,
                range_end=piece.end,
                first_offsets=FIRST_OFFSETS,
            )
            return row["doubled"], row["absent"]

    def _count_run(self, cursor: Cursor, bound: PipelineRecord, run: Sequence[Piece]) -> Iterator[Counted]:
        rows = self._in_target(
            cursor,
            bound,
            "count_rows_of_run",
            **run[0].place._asdict(),
            range_start=run[0].start,
            range_end=run[-1].end,
            starts=[piece.start for piece in run],
        )
        counted = {row["place"]: Counted(row["rows"], row["identities"]) for row in rows}
        return (counted.get(place, Counted(0, 0)) for place in range(1, len(run) + 1))

    def _in_target(self, cursor: Cursor, bound: PipelineRecord, name: str, **parameters: object) -> list[Row]:
        target = TargetSettings(bound.target_schema, bound.target_table)
        identifiers = target_identifiers(target, bound.identity)
        try:
            return fetch_rows(cursor, name, identifiers, pipeline=self._pipeline, **parameters)
        except (psycopg2.errors.UndefinedTable, psycopg2.errors.UndefinedColumn) as error:
            raise target_is_gone(error, target, self._pipeline) from error

    def _bound(self, cursor: Cursor) -> PipelineRecord:
        row = fetch_row(cursor, "select_pipeline", pipeline=self._pipeline)
        assert row is not None  # noqa: S101 - pipelines are never deleted, and scope() has found it
        return pipeline_of(row)

    @contextmanager
    def _snapshot(self) -> Iterator[Cursor]:
        with (
            self._sessions.use("kafka_ingest audit") as connection,
            database_faults("count the rows of the table"),
            transaction(connection, SNAPSHOT) as cursor,
        ):
            yield cursor


def _given_up_at(cursor: Cursor, bound: PipelineRecord) -> object:
    rows = fetch_rows(cursor, "given_up_at", schema=bound.target_schema, table=bound.target_table)
    return next(row["given_up_at"] for row in rows if row["pipeline"] == bound.pipeline)


def _written(row: Row, by: str) -> Written:
    piece = _piece(row)
    return Written(piece.place, piece.start, piece.end, row.get("rows", 0), by, row.get("is_given_up", False))


def _piece(row: Row) -> Piece:
    return Piece(Place(row["topic"], row["generation"], row["partition"]), row["range_start"], row["range_end"])


def _runs(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Join pieces that follow each other: an index is searched once for each group."""
    runs: list[list[Piece]] = []
    for piece in pieces:
        if runs and (runs[-1][-1].place, runs[-1][-1].end) == (piece.place, piece.start):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return runs
