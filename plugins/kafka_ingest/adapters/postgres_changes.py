"""Records position changes in PostgreSQL: port ``PositionLedger``, one connection and one transaction a method.

Locks: pipeline, then batch, then positions by (topic, partition).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import psycopg2

from kafka_ingest.adapters.postgres_change_rows import (
    before_arrays,
    change_arrays,
    place_arrays,
    recorded_change,
)
from kafka_ingest.adapters.postgres_connection import (
    SHORT_TRANSACTION,
    SNAPSHOT,
    Cursor,
    TransactionLimits,
    connect,
    database_faults,
    transaction,
)
from kafka_ingest.adapters.postgres_migrations import require_current_ledger
from kafka_ingest.adapters.postgres_plan import read_plan_view
from kafka_ingest.adapters.postgres_rows import fetch_row, fetch_rows, identity_parameters, position_arrays, run_query
from kafka_ingest.adapters.target_catalog import read_table
from kafka_ingest.core.batch import Request
from kafka_ingest.core.change_requests import ChangeRequest
from kafka_ingest.core.change_view import ChangeView, NewChange
from kafka_ingest.core.choose_changes import needs_table
from kafka_ingest.core.errors import CommitStateUnknown, LedgerMoved
from kafka_ingest.core.ledger_view import PipelineRecord
from kafka_ingest.core.position_changes import RecordedChange
from kafka_ingest.core.settings import TargetSettings


class PostgresPositionLedger:
    """The ledger of the pipelines that load into one database, as position changes need it.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; secrets stay in here.
        limits: Time-outs of its short transactions.
    """

    def __init__(self, params: Mapping[str, object], limits: TransactionLimits = SHORT_TRANSACTION) -> None:
        self._params = params
        self._limits = limits

    def change_view(self, request: ChangeRequest, target: TargetSettings) -> ChangeView:
        """Reads what a change needs, at one moment."""
        with self._transaction("read the ledger", request, SNAPSHOT) as cursor:
            require_current_ledger(cursor)
            return _read_view(cursor, request, target)

    def record_change(self, change: NewChange, seen: ChangeView) -> RecordedChange:
        """Makes a change, if the ledger still stands as it was seen; durable on return.

        Raises:
            LedgerMoved: Something decisive has changed; nothing was written.
            CommitStateUnknown: The answer to COMMIT was lost; the same request again decides.
        """
        try:
            with self._transaction("change positions", change.request) as cursor:
                return _write_change_once(cursor, change, seen)
        except CommitStateUnknown as unknown:
            unknown.next_command = f"ask again with the request id {change.request.request_id}: it is done once"
            raise

    @contextmanager
    def _transaction(
        self, doing: str, request: ChangeRequest, limits: TransactionLimits | None = None
    ) -> Iterator[Cursor]:
        with (
            closing(connect(self._params, application_name="kafka_ingest change")) as connection,
            database_faults(doing, pipeline=request.pipeline),
            transaction(connection, limits or self._limits) as cursor,
        ):
            yield cursor


def _read_view(cursor: Cursor, request: ChangeRequest, target: TargetSettings) -> ChangeView:
    # A change plans nothing: no batch belongs to this request.
    ledger = read_plan_view(cursor, request.known_name, Request("position change", request.request_id), target)
    is_renamed = request.known_name != request.pipeline
    return ChangeView(
        ledger=ledger,
        target=target,
        recorded=_read_recorded(cursor, request),
        target_columns=_read_columns(cursor, target) if needs_table(request.change) else None,
        name_is_taken=is_renamed and fetch_row(cursor, "select_pipeline", pipeline=request.pipeline) is not None,
    )


def _read_columns(cursor: Cursor, target: TargetSettings) -> Mapping[str, str] | None:
    table = read_table(cursor, target)
    return {column.name: column.type for column in table.columns} if table else None


def _read_recorded(cursor: Cursor, request: ChangeRequest) -> RecordedChange | None:
    rows = fetch_rows(cursor, "select_position_changes", request_id=request.request_id, pipeline=request.pipeline)
    return recorded_change(request, rows) if rows else None


def _write_change_once(cursor: Cursor, change: NewChange, seen: ChangeView) -> RecordedChange:
    try:
        return _write_change(cursor, change, seen)
    except psycopg2.errors.UniqueViolation as error:
        raise _moved(change, f"another change was first ({error.diag.constraint_name})") from error


def _write_change(cursor: Cursor, change: NewChange, seen: ChangeView) -> RecordedChange:
    request, bound = change.request, seen.ledger.pipeline
    run_query(cursor, "lock_pipeline", pipeline=request.known_name)
    if bound is None or not seen.still_stands(_read_view(cursor, request, seen.target)):
        raise _moved(change, "positions, batches, served topics or columns of the table have changed")
    _supersede(cursor, change, seen)
    _move_positions(cursor, change)
    _retire_topic(cursor, change, bound)
    _read_topic_again(cursor, change, bound)
    _bind(cursor, change, seen, bound)
    run_query(
        cursor,
        "insert_position_changes",
        request_id=request.request_id,
        kind=request.change.kind.value,
        pipeline=request.pipeline,
        who=request.who,
        why=request.why,
        **change_arrays(change),
    )
    recorded = _read_recorded(cursor, request)
    assert recorded is not None  # noqa: S101 - this transaction has just inserted it
    return recorded


def _supersede(cursor: Cursor, change: NewChange, seen: ChangeView) -> None:
    outstanding = seen.ledger.outstanding.batch_id if seen.ledger.outstanding else None
    if outstanding != change.supersedes:
        raise _moved(change, f"the outstanding batch is {outstanding}, the change supersedes {change.supersedes}")
    if outstanding is None:
        return
    if run_query(cursor, "supersede_batch", batch_id=outstanding, pipeline=change.request.known_name) != 1:
        raise _moved(change, f"batch {outstanding} is no longer planned")
    run_query(cursor, "delete_hold", batch_id=outstanding)


def _move_positions(cursor: Cursor, change: NewChange) -> None:
    pipeline, moves = change.request.known_name, change.plan.moves
    moved = [(move.before, move.after) for move in moves if move.before and move.after]
    gone = [move.before for move in moves if move.before and not move.after]
    new = [move.after for move in moves if move.after and not move.before]
    before, after = [b for b, _ in moved], [a for _, a in moved]
    run_query(cursor, "lock_positions", pipeline=pipeline, **place_arrays([*before, *gone]))
    changed = run_query(
        cursor, "change_positions", pipeline=pipeline, **position_arrays(after), **before_arrays(before)
    )
    deleted = run_query(cursor, "delete_positions", pipeline=pipeline, **place_arrays(gone), **before_arrays(gone))
    if (changed, deleted) != (len(moved), len(gone)):
        raise _moved(
            change, f"{changed} of {len(moved)} positions and {deleted} of {len(gone)} stand as they were seen"
        )
    run_query(cursor, "insert_positions", pipeline=pipeline, **position_arrays(new))


def _retire_topic(cursor: Cursor, change: NewChange, bound: PipelineRecord) -> None:
    topic = change.plan.retired_topic
    if topic is None:
        return
    if run_query(cursor, "retire_topics", **_served_place(bound), topics=[topic]) != 1:
        raise _moved(change, f"topic {topic} is no longer served")


def _read_topic_again(cursor: Cursor, change: NewChange, bound: PipelineRecord) -> None:
    topic = change.plan.topic_read_again
    if topic is None:
        return
    if run_query(cursor, "read_topic_again", **_served_place(bound), topic=topic) != 1:
        raise _moved(change, f"topic {topic} is no longer retired")


def _bind(cursor: Cursor, change: NewChange, seen: ChangeView, bound: PipelineRecord) -> None:
    after = change.plan.binding
    if after is None:
        return
    if {**_served_place(after), "pipeline": bound.pipeline} != _served_place(bound):
        _serve_elsewhere(cursor, change, seen, bound)
    run_query(
        cursor,
        "bind_pipeline",
        known_name=bound.pipeline,
        isolation_level=after.isolation_level.value,
        **_served_place(after),
        **identity_parameters(after.identity),
    )


def _serve_elsewhere(cursor: Cursor, change: NewChange, seen: ChangeView, bound: PipelineRecord) -> None:
    """Serves the topics in the new place, and marks them as retired in the former one."""
    after = change.plan.binding or bound
    served = fetch_rows(
        cursor,
        "serve_topics_elsewhere",
        pipeline=bound.pipeline,
        from_schema=bound.target_schema,
        from_table=bound.target_table,
        from_cluster=bound.cluster_id,
        to_schema=after.target_schema,
        to_table=after.target_table,
        to_cluster=after.cluster_id,
    )
    moved = {move.place.topic for move in change.plan.moves}  # a new cluster moves all topics that are not retired
    wanted = moved or {position.topic for position in seen.ledger.positions}
    if refused := wanted - {row["topic"] for row in served}:
        raise _moved(change, f"another pipeline serves {', '.join(sorted(refused))}")
    run_query(cursor, "retire_topics", **_served_place(bound), topics=None)


def _served_place(record: PipelineRecord) -> dict[str, str]:
    return {
        "pipeline": record.pipeline,
        "target_schema": record.target_schema,
        "target_table": record.target_table,
        "cluster_id": record.cluster_id,
    }


def _moved(change: NewChange, found: str) -> LedgerMoved:
    return LedgerMoved(
        "the ledger moved while the change was chosen; nothing was recorded",
        expected="the ledger as it was read at the beginning",
        found=found,
        next_command="none: the change is chosen again",
        pipeline=change.request.pipeline,
    )
