"""Changes of positions and roll-backs: each is the one write of ``ledger_write.py``, and what belongs to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
from psycopg2 import sql

from kafka_ingest.errors import IngestError, TargetMismatch
from kafka_ingest.postgres.catalog import read_hooks, read_table, target_identifiers
from kafka_ingest.postgres.database import (
    SHORT_TRANSACTION,
    SNAPSHOT,
    Cursor,
    Row,
    TransactionLimits,
    begin,
    commit,
    connect,
    database_faults,
    fetch_row,
    fetch_rows,
    ingest_error,
    query_with_identifiers,
    rows_of,
    run_query,
    server_message,
    transaction,
)
from kafka_ingest.postgres.ledger_write import (
    Reason,
    begin_write,
    done_once,
    first_writer_wins,
    move_positions,
    read_decisive,
    record_changes,
)
from kafka_ingest.postgres.migrations import require_current_ledger
from kafka_ingest.postgres.rows import (
    change_details,
    deleted_by_partition,
    identity_parameters,
    load_batches,
    place_arrays,
    range_arrays,
    range_of,
    recorded_change,
)
from kafka_ingest.protocol import roll_back
from kafka_ingest.protocol.batch import Request
from kafka_ingest.protocol.decisions import ChangeRequest, ChangeView, NewChange, needs_table
from kafka_ingest.protocol.ledger_view import ChangePlan, LedgerWrite, PipelineRecord, RecordedChange
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import TargetSettings

# ----------
# Changes of positions: port ``PositionLedger``, one connection and one transaction a method.


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
        """Read what a change needs, at one moment."""
        with self._transaction("read the ledger", SNAPSHOT) as cursor:
            require_current_ledger(cursor)
            return _read_view(cursor, request, target)

    def record_change(self, change: NewChange, seen: ChangeView) -> RecordedChange:
        """Make a change, if the ledger still stands as it was seen; durable on return.

        Raises:
            LedgerMoved: Something decisive has changed; nothing was written.
            CommitStateUnknown: The answer to COMMIT was lost; the same request again decides.
        """
        request = change.request
        with done_once(request.request_id), self._transaction("change positions") as cursor:
            return _write_change(cursor, change, seen)

    @contextmanager
    def _transaction(self, doing: str, limits: TransactionLimits | None = None) -> Iterator[Cursor]:
        with (
            closing(connect(self._params, application_name="kafka_ingest change")) as connection,
            database_faults(doing),
            transaction(connection, limits or self._limits) as cursor,
        ):
            yield cursor


def _read_view(cursor: Cursor, request: ChangeRequest, target: TargetSettings) -> ChangeView:
    # A change plans nothing: no batch belongs to this request.
    ledger = read_decisive(cursor, request.known_name, Request("position change", request.request_id), target)
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


def _write_change(cursor: Cursor, change: NewChange, seen: ChangeView) -> RecordedChange:
    request, write, bound = change.request, change.write_from(seen), seen.ledger.pipeline
    with first_writer_wins(write):
        begin_write(cursor, write, lambda: _read_view(cursor, request, seen.target))
        assert bound is not None  # noqa: S101 - its row is locked
        move_positions(cursor, write, change.plan.moves)
        _change_topics(cursor, change.plan, write, bound)
        _bind(cursor, change.plan, write, bound)
        _record(cursor, change)
    recorded = _read_recorded(cursor, request)
    assert recorded is not None  # noqa: S101 - this transaction has just inserted it
    return recorded


def _record(cursor: Cursor, change: NewChange) -> None:
    request, changes = change.request, change.plan.positions
    reason = Reason(request.pipeline, request.request_id, request.change.kind.value, request.who, request.why)
    details = [change_details(change)] * (len(changes) or 1)
    record_changes(cursor, reason, changes, details, topic=change.plan.retired_topic or change.plan.topic_read_again)


def _change_topics(cursor: Cursor, plan: ChangePlan, write: LedgerWrite, bound: PipelineRecord) -> None:
    place = _served_place(bound)
    if plan.retired_topic and run_query(cursor, "retire_topics", **place, topics=[plan.retired_topic]) != 1:
        raise write.moved(f"topic {plan.retired_topic} is no longer served")
    again = plan.topic_read_again
    if again and run_query(cursor, "read_topic_again", **place, topic=again) != 1:
        raise write.moved(f"topic {again} is no longer retired")


def _bind(cursor: Cursor, plan: ChangePlan, write: LedgerWrite, bound: PipelineRecord) -> None:
    after = plan.binding
    if after is None:
        return
    if {**_served_place(after), "pipeline": bound.pipeline} != _served_place(bound):
        _serve_elsewhere(cursor, plan, write, bound, after)
    run_query(
        cursor,
        "bind_pipeline",
        known_name=bound.pipeline,
        isolation_level=after.isolation_level.value,
        **_served_place(after),
        **identity_parameters(after.identity),
    )
    if after.pipeline != bound.pipeline:
        run_query(cursor, "rename_attempts", known_name=bound.pipeline, pipeline=after.pipeline)


def _serve_elsewhere(
    cursor: Cursor, plan: ChangePlan, write: LedgerWrite, bound: PipelineRecord, after: PipelineRecord
) -> None:
    """Serve the topics in the new place, and mark them as retired in the former one."""
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
    moved = {move.place.topic for move in plan.moves}  # a new cluster moves all topics that are not retired
    wanted = moved or {position.topic for position in write.seen.ledger.positions}
    if refused := wanted - {row["topic"] for row in served}:
        raise write.moved(f"another pipeline serves {', '.join(sorted(refused))}")
    run_query(cursor, "retire_topics", **_served_place(bound), topics=None)


def _served_place(record: PipelineRecord) -> dict[str, str]:
    return {
        "pipeline": record.pipeline,
        "target_schema": record.target_schema,
        "target_table": record.target_table,
        "cluster_id": record.cluster_id,
    }


# ----------
# What a roll-back reads from the ledger, and how ``position_change`` holds it.

_KIND = "rolled_back"
#: A roll-back plans nothing: no batch belongs to this request.
_NOBODY = Request("roll-back", "")


def read_roll_back_view(cursor: Cursor, request: roll_back.RollBackRequest) -> roll_back.RollBackView:
    """Read what a roll-back needs. In a snapshot all parts are of one moment."""
    bound = fetch_row(cursor, "select_pipeline", pipeline=request.pipeline)
    target = TargetSettings(bound["target_schema"], bound["target_table"]) if bound else TargetSettings("", "")
    lines = fetch_rows(cursor, "bound_lines", pipeline=request.pipeline)
    changes = fetch_rows(cursor, "select_position_changes", request_id=request.request_id, pipeline=request.pipeline)
    used_for = changes[0]["kind"] if changes else None
    return roll_back.RollBackView(
        ledger=read_decisive(cursor, request.pipeline, _NOBODY, target),
        bound_timelines={TopicPartition(row["topic"], row["partition"]): row["line"] for row in lines},
        writers=_writers(cursor, request),
        used_for=used_for,
        recorded=_record_of(request.request_id, changes) if used_for == _KIND else None,
    )


def _writers(cursor: Cursor, request: roll_back.RollBackRequest) -> tuple[roll_back.Writer, ...]:
    found = fetch_rows(cursor, "find_writers", pipeline=request.pipeline, batches=request.batches)
    batches = load_batches(cursor, [row["batch_id"] for row in found])
    ranges: dict[str, list[roll_back.WrittenRange]] = {batch.batch_id: [] for batch in batches}
    for row in fetch_rows(cursor, "select_written_ranges", batch_ids=list(ranges)):
        counts = roll_back.WrittenCounts(row["rows"], row["dead_letters"])
        ranges[row["batch_id"]].append(roll_back.WrittenRange(range_of(row), counts))
    return tuple(roll_back.Writer(batch, tuple(ranges[batch.batch_id])) for batch in reversed(batches))


def _details(record: roll_back.RollBackRecord, span: roll_back.UndoneSpan) -> dict[str, Any]:
    """Return what the row of a span tells beside its position; :func:`_record_of` reads it."""
    return {
        "batches": record.batches,
        "batch_ids": list(record.batch_ids),
        "superseded": record.superseded,
        "rows": span.counts.rows,
        "dead_letters": span.counts.dead_letters,
    }


def _record_of(request_id: str, changes: Sequence[Row]) -> roll_back.RollBackRecord:
    details = changes[0]["details"]
    return roll_back.RollBackRecord(
        request_id=request_id,
        batches=details["batches"],
        batch_ids=tuple(details["batch_ids"]),
        superseded=details["superseded"],
        spans=tuple(_span_of(change) for change in changes),
    )


def _span_of(change: Row) -> roll_back.UndoneSpan:
    details = change["details"]
    return roll_back.UndoneSpan(
        topic=change["topic"],
        partition=change["partition"],
        generation=change["from_generation"],
        from_offset=change["from_offset"],
        to_offset=change["to_offset"],
        from_timeline=change["from_line"],
        to_timeline=change["to_line"],
        counts=roll_back.WrittenCounts(details["rows"], details["dead_letters"]),
    )


# ----------
# Roll-backs: port ``RollBackLedger``. One connection, one transaction, READ COMMITTED.
#
# Locks: those of every write of the ledger, then what DELETE takes.

#: The target may be locked by a VACUUM FULL or ALTER TABLE for longer than the ledger's rows are.
_ROLL_BACK_LIMITS = TransactionLimits(lock_timeout_seconds=30)
_APPLICATION = "kafka_ingest roll-back"


class PostgresRollBackLedger:
    """The ledger and the target, as far as a roll-back goes.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; secrets stay in here.
        limits: Time-outs of the transaction.
    """

    def __init__(self, params: Mapping[str, object], limits: TransactionLimits = _ROLL_BACK_LIMITS) -> None:
        self._params = params
        self._limits = limits

    def roll_back_view(self, request: roll_back.RollBackRequest) -> roll_back.RollBackView:
        """Read what a roll-back needs, at one moment."""
        with (
            closing(connect(self._params, application_name=_APPLICATION)) as connection,
            database_faults("read the ledger"),
            transaction(connection, SNAPSHOT) as cursor,
        ):
            require_current_ledger(cursor)
            return read_roll_back_view(cursor, request)

    @contextmanager
    def begin_roll_back(self, plan: roll_back.RollBackPlan) -> Iterator[PostgresRollBack]:
        """Open a transaction; leaving the context without commit rolls it back."""
        # Closing a connection rolls back what was not committed, and cannot fail on a broken one.
        with closing(connect(self._params, application_name=_APPLICATION)) as connection:
            with database_faults("begin to roll back"):
                cursor = connection.cursor()
                begin(cursor, self._limits)
            yield PostgresRollBack(cursor, plan)


class PostgresRollBack:
    """The transaction of one roll-back; see the port for the order of the methods."""

    def __init__(self, cursor: Cursor, plan: roll_back.RollBackPlan) -> None:
        self._cursor = cursor
        self._plan = plan
        self._pipeline = plan.request.pipeline
        self._identifiers: dict[str, sql.Composable] = {}

    def lock(self, seen: roll_back.RollBackView) -> None:
        """Lock pipeline, batches and positions, and supersede the outstanding batch where the plan says so.

        Raises:
            LedgerMoved: The ledger no longer stands as it was seen.
        """
        plan, bound = self._plan, seen.ledger.pipeline
        write = self._write = plan.write_from(seen)
        batch_ids = [batch.batch_id for batch in plan.batches]
        with database_faults("lock what is rolled back"):
            begin_write(self._cursor, write, lambda: read_roll_back_view(self._cursor, plan.request))
            assert bound is not None  # noqa: S101 - its row is locked
            # The batches may name the columns as they were called before (change-identity-columns).
            self._identifiers = target_identifiers(plan.batches[0].settings.target, bound.identity)
            if run_query(self._cursor, "lock_batches", batch_ids=batch_ids) != len(batch_ids):
                raise write.moved("a batch is no longer committed")
            where = place_arrays([lowered.before for lowered in plan.positions])
            run_query(self._cursor, "lock_positions", pipeline=self._pipeline, **where)

    def count(self, ranges: Sequence[roll_back.WrittenRange]) -> Sequence[roll_back.WrittenCounts]:
        """Count rows of the target and dead letters in each range, by identity.

        Raises:
            TargetMismatch: The target or one of its metadata columns is gone.
        """
        parameters = {"pipeline": self._pipeline, **range_arrays([written.range for written in ranges])}
        rows = self._in_target("count_rows_of_ranges", parameters)
        with database_faults("count dead letters"):
            dead_letters = fetch_rows(self._cursor, "count_dead_letters_of_ranges", **parameters)
        return [roll_back.WrittenCounts(r["found"], d["found"]) for r, d in zip(rows, dead_letters, strict=True)]

    def delete(self) -> Mapping[TopicPartition, roll_back.WrittenCounts]:
        """Delete rows and dead letters by identity; return their numbers by partition.

        Raises:
            TargetMismatch: A constraint, trigger or rule of the target refused it or kept rows, or the table no longer
                fits.
        """
        parameters = {"pipeline": self._pipeline, **_undone_spans(self._plan.positions)}
        rows = deleted_by_partition(self._in_target("delete_rows_of_ranges", parameters))
        self._require_none_left(parameters)
        with database_faults("delete dead letters"):
            dead_letters = deleted_by_partition(fetch_rows(self._cursor, "delete_dead_letters_of_ranges", **parameters))
        places = [lowered.before.topic_partition for lowered in self._plan.positions]
        return {place: roll_back.WrittenCounts(rows.get(place, 0), dead_letters.get(place, 0)) for place in places}

    def record(self, record: roll_back.RollBackRecord) -> None:
        """Lower the positions, set the batches' state, and store the position changes.

        Raises:
            LedgerMoved: A position or a batch no longer stands as it was seen.
        """
        plan, request, write = self._plan, self._plan.request, self._write
        with database_faults("record the roll-back"), first_writer_wins(write):
            move_positions(self._cursor, write, plan.moves)
            undone = run_query(self._cursor, "roll_back_batches", batch_ids=list(record.batch_ids))
            if undone != len(plan.batches):
                raise write.moved(f"{undone} of {len(plan.batches)} batches stand as they were seen")
            reason = Reason(self._pipeline, request.request_id, _KIND, request.who, request.why)
            details = [_details(record, span) for span in record.spans]
            record_changes(self._cursor, reason, [move.change for move in plan.moves], details)

    def commit(self) -> None:
        """Commit; durable on return.

        Raises:
            CommitStateUnknown: The connection broke before the answer; the same request again decides.
            CommitDidNotHappen: The server answered something else than COMMIT: nothing was changed.
            TargetMismatch: A deferred constraint of the target refused it; nothing was changed.
        """
        with done_once(self._plan.request.request_id):
            try:
                commit(self._cursor)
            except psycopg2.Error as error:
                raise self._target_fault(error) from None

    def _require_none_left(self, parameters: Mapping[str, Any]) -> None:
        """Stop where a trigger or rule kept rows, or put them back: the next load would write them a second time."""
        target = self._plan.batches[0].settings.target
        hooks = [hook for hook in read_hooks(self._cursor, target) if hook.on_delete]
        if not hooks:
            return
        spans = {"replaced_from": parameters["range_start"], "replaced_to": parameters["range_end"]}
        (left,) = self._in_target("count_rows_left", {**parameters, **spans, "with_resolved": True})
        if left["found"]:
            raise TargetMismatch(
                f"triggers or rules of {target} keep rows from being deleted; nothing was changed",
                expected="no row of what is rolled back",
                found=f"{left['found']} rows still stand, as {left['example']}; it has {', '.join(map(str, hooks))}",
                next_command="let them leave the rows alone, or drop them, then roll back again",
            )

    def _in_target(self, name: str, parameters: Mapping[str, object]) -> list[dict[str, Any]]:
        try:
            self._cursor.execute(query_with_identifiers(f"queries/{name}", **self._identifiers), parameters)
        except psycopg2.Error as error:
            # The server's detail can quote a row: it must not follow as the cause.
            raise self._target_fault(error) from None
        return rows_of(self._cursor)

    def _target_fault(self, error: psycopg2.Error) -> IngestError:
        target = self._plan.batches[0].settings.target
        return ingest_error(error, "roll back in the target") or TargetMismatch(
            f"the target {target} refused the roll-back; nothing was changed",
            expected="a table with its metadata columns, from which rows can be deleted",
            found=server_message(error),
            next_command="restore the column, or change the constraint or trigger, then roll back again",
        )


def _undone_spans(positions: Sequence[roll_back.LoweredPosition]) -> dict[str, list[Any]]:
    return {
        **place_arrays([lowered.before for lowered in positions]),
        "generation": [lowered.before.generation for lowered in positions],
        "range_start": [lowered.after.committed_offset for lowered in positions],
        "range_end": [lowered.before.committed_offset for lowered in positions],
    }
