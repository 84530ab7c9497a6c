"""Rolls batches back in PostgreSQL: port ``RollBackLedger``. One connection, one transaction, READ COMMITTED.

Locks: pipeline, then batches, then positions by (topic, partition), then what DELETE takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
from psycopg2 import sql

from kafka_ingest.adapters.postgres_audit import target_identifiers
from kafka_ingest.adapters.postgres_change_rows import before_arrays, place_arrays
from kafka_ingest.adapters.postgres_connection import (
    SNAPSHOT,
    Cursor,
    TransactionLimits,
    begin,
    commit,
    connect,
    database_faults,
    ingest_error,
    server_message,
    transaction,
)
from kafka_ingest.adapters.postgres_migrations import require_current_ledger
from kafka_ingest.adapters.postgres_roll_back_rows import change_arrays, read_roll_back_view
from kafka_ingest.adapters.postgres_rows import fetch_rows, position_arrays, query_with_identifiers, rows_of, run_query
from kafka_ingest.adapters.target_catalog import read_hooks
from kafka_ingest.core.errors import CommitStateUnknown, IngestError, LedgerMoved, TargetMismatch
from kafka_ingest.core.offsets import OffsetRange, TopicPartition
from kafka_ingest.core.roll_back import (
    LoweredPosition,
    RollBackPlan,
    RollBackRecord,
    RollBackRequest,
    RollBackView,
    WrittenCounts,
    WrittenRange,
)

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

    def roll_back_view(self, request: RollBackRequest) -> RollBackView:
        """Reads what a roll-back needs, at one moment."""
        with (
            closing(connect(self._params, application_name=_APPLICATION)) as connection,
            database_faults("read the ledger", pipeline=request.pipeline),
            transaction(connection, SNAPSHOT) as cursor,
        ):
            require_current_ledger(cursor)
            return read_roll_back_view(cursor, request)

    @contextmanager
    def begin_roll_back(self, plan: RollBackPlan) -> Iterator[PostgresRollBack]:
        """Opens a transaction; leaving the context without commit rolls it back."""
        # Closing a connection rolls back what was not committed, and cannot fail on a broken one.
        with closing(connect(self._params, application_name=_APPLICATION)) as connection:
            with database_faults("begin to roll back", pipeline=plan.request.pipeline):
                cursor = connection.cursor()
                begin(cursor, self._limits)
            yield PostgresRollBack(cursor, plan)


class PostgresRollBack:
    """The transaction of one roll-back; see the port for the order of the methods."""

    def __init__(self, cursor: Cursor, plan: RollBackPlan) -> None:
        self._cursor = cursor
        self._plan = plan
        self._pipeline = plan.request.pipeline
        self._identifiers: dict[str, sql.Composable] = {}

    def lock(self, seen: RollBackView) -> None:
        """Locks pipeline, batches and positions, and supersedes the outstanding batch where the plan says so.

        Raises:
            LedgerMoved: The ledger no longer stands as it was seen.
        """
        batch_ids = [batch.batch_id for batch in self._plan.batches]
        with database_faults("lock what is rolled back", pipeline=self._pipeline):
            run_query(self._cursor, "lock_pipeline", pipeline=self._pipeline)
            bound = seen.ledger.pipeline
            if bound is None or not seen.still_stands(read_roll_back_view(self._cursor, self._plan.request)):
                raise self._moved("positions or batches have changed")
            # The batches may name the columns as they were called before (change-identity-columns).
            self._identifiers = target_identifiers(self._plan.batches[0].settings.target, bound.identity)
            self._supersede()
            if run_query(self._cursor, "lock_batches", batch_ids=batch_ids) != len(batch_ids):
                raise self._moved("a batch is no longer committed")
            where = place_arrays([lowered.before for lowered in self._plan.positions])
            run_query(self._cursor, "lock_positions", pipeline=self._pipeline, **where)

    def count(self, ranges: Sequence[WrittenRange]) -> Sequence[WrittenCounts]:
        """Counts rows of the target and dead letters in each range, by identity.

        Raises:
            TargetMismatch: The target or one of its metadata columns is gone.
        """
        parameters = {"pipeline": self._pipeline, **_spans([written.range for written in ranges])}
        rows = self._in_target("count_rows_of_ranges", parameters)
        with database_faults("count dead letters", pipeline=self._pipeline):
            dead_letters = fetch_rows(self._cursor, "count_dead_letters_of_ranges", **parameters)
        return [WrittenCounts(r["found"], d["found"]) for r, d in zip(rows, dead_letters, strict=True)]

    def delete(self) -> Mapping[TopicPartition, WrittenCounts]:
        """Deletes rows and dead letters by identity; gives their numbers by partition.

        Raises:
            TargetMismatch: A constraint, trigger or rule of the target refused it or kept rows, or the table no longer
                fits.
        """
        parameters = {"pipeline": self._pipeline, **_undone_spans(self._plan.positions)}
        rows = _by_partition(self._in_target("delete_rows_of_ranges", parameters))
        self._require_none_left(parameters)
        with database_faults("delete dead letters", pipeline=self._pipeline):
            dead_letters = _by_partition(fetch_rows(self._cursor, "delete_dead_letters_of_ranges", **parameters))
        places = [lowered.before.topic_partition for lowered in self._plan.positions]
        return {place: WrittenCounts(rows.get(place, 0), dead_letters.get(place, 0)) for place in places}

    def record(self, record: RollBackRecord) -> None:
        """Lowers the positions, sets the batches' state, and stores the position changes.

        Raises:
            LedgerMoved: A position or a batch no longer stands as it was seen.
        """
        plan, request = self._plan, self._plan.request
        with database_faults("record the roll-back", pipeline=self._pipeline):
            before = before_arrays([lowered.before for lowered in plan.positions])
            after = position_arrays([lowered.after for lowered in plan.positions])
            lowered = run_query(self._cursor, "change_positions", pipeline=self._pipeline, **after, **before)
            undone = run_query(self._cursor, "roll_back_batches", batch_ids=list(record.batch_ids))
            if (lowered, undone) != (len(plan.positions), len(plan.batches)):
                raise self._moved(f"{lowered} positions and {undone} batches stand as they were seen")
            run_query(
                self._cursor,
                "insert_position_changes",
                request_id=request.request_id,
                kind="rolled_back",
                pipeline=self._pipeline,
                who=request.who,
                why=request.why,
                **change_arrays(plan, record),
            )

    def commit(self) -> None:
        """Commits; durable on return.

        Raises:
            CommitStateUnknown: The connection broke before the answer; the same request again decides.
            CommitDidNotHappen: The server answered something else than COMMIT: nothing was changed.
            TargetMismatch: A deferred constraint of the target refused it; nothing was changed.
        """
        try:
            commit(self._cursor)
        except psycopg2.Error as error:
            fault = self._target_fault(error)
            if isinstance(fault, CommitStateUnknown):
                request_id = self._plan.request.request_id
                fault.next_command = f"ask again with the request id {request_id}: it is done once"
            raise fault from None

    def _require_none_left(self, parameters: Mapping[str, Any]) -> None:
        """Stops where a trigger or rule kept rows, or put them back: the next load would write them a second time."""
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
                pipeline=self._pipeline,
            )

    def _supersede(self) -> None:
        batch_id = self._plan.supersedes
        if batch_id is None:
            return
        if run_query(self._cursor, "supersede_batch", batch_id=batch_id, pipeline=self._pipeline) != 1:
            raise self._moved(f"batch {batch_id} is no longer planned")
        run_query(self._cursor, "delete_hold", batch_id=batch_id)

    def _in_target(self, name: str, parameters: Mapping[str, object]) -> list[dict[str, Any]]:
        try:
            self._cursor.execute(query_with_identifiers(f"queries/{name}", **self._identifiers), parameters)
        except psycopg2.Error as error:
            # The server's detail can quote a row: it must not follow as the cause.
            raise self._target_fault(error) from None
        return rows_of(self._cursor)

    def _target_fault(self, error: psycopg2.Error) -> IngestError:
        target = self._plan.batches[0].settings.target
        return ingest_error(error, "roll back in the target", pipeline=self._pipeline) or TargetMismatch(
            f"the target {target} refused the roll-back; nothing was changed",
            expected="a table with its metadata columns, from which rows can be deleted",
            found=server_message(error),
            next_command="restore the column, or change the constraint or trigger, then roll back again",
            pipeline=self._pipeline,
        )

    def _moved(self, found: str) -> LedgerMoved:
        return LedgerMoved(
            "the ledger moved while the roll-back was chosen; nothing was changed",
            expected="the ledger as it was read at the beginning",
            found=found,
            next_command="none: it is chosen again",
            pipeline=self._pipeline,
        )


def _undone_spans(positions: Sequence[LoweredPosition]) -> dict[str, list[Any]]:
    return {
        **place_arrays([lowered.before for lowered in positions]),
        "generation": [lowered.before.generation for lowered in positions],
        "range_start": [lowered.after.committed_offset for lowered in positions],
        "range_end": [lowered.before.committed_offset for lowered in positions],
    }


def _spans(ranges: Sequence[OffsetRange]) -> dict[str, list[Any]]:
    return {
        "topic": [r.topic for r in ranges],
        "partition": [r.partition for r in ranges],
        "generation": [r.generation for r in ranges],
        "range_start": [r.start for r in ranges],
        "range_end": [r.end for r in ranges],
    }


def _by_partition(rows: Sequence[Mapping[str, Any]]) -> dict[TopicPartition, int]:
    return {TopicPartition(row["topic"], row["partition"]): row["deleted"] for row in rows}
