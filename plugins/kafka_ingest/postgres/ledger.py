"""The ledger: claims, audits and everything that a step reads; what moves positions is in ``ledger_write.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

import psycopg2
from psycopg2 import sql

from kafka_ingest.errors import Busy, CommitStateUnknown, ConfigError, Fenced, IngestError, LockTimeout
from kafka_ingest.postgres.catalog import target_identifiers, target_is_gone
from kafka_ingest.postgres.database import (
    SHORT_TRANSACTION,
    SNAPSHOT,
    Cursor,
    Identifiers,
    NewSessions,
    Row,
    Sessions,
    TransactionLimits,
    database_faults,
    fetch_row,
    fetch_rows,
    query_with_identifiers,
    rows_of,
    run_query,
    sql_names,
    sql_text,
    transaction,
)
from kafka_ingest.postgres.ledger_write import load_own_batch, read_plan_view, write_plan
from kafka_ingest.postgres.migrations import require_current_ledger
from kafka_ingest.postgres.rows import (
    announcer,
    hold_of,
    is_batch_id,
    load_added_columns,
    load_batch,
    load_batches,
    pipeline_of,
    request_parameters,
    standing_of,
)
from kafka_ingest.protocol.attempts import Attempt
from kafka_ingest.protocol.batch import Batch, BatchStanding, BatchState, Hold, Request
from kafka_ingest.protocol.decisions import NewPlan
from kafka_ingest.protocol.ledger_view import (
    REPLAY_INVARIANT,
    STATE_INVARIANT,
    TARGET_INVARIANT,
    WHOLE_STATE_INVARIANT,
    PlanView,
    Violation,
)
from kafka_ingest.protocol.new_columns import with_added_columns
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.staging import DeadLetterGroup, StageProgress
from kafka_ingest.settings import Deletes, IdentityColumns, TargetSettings

# ----------
# Claims and the standing of a batch. Locks: batch, then hold.


def claim_batch(cursor: Cursor, batch_id: str, hold_seconds: int) -> Batch:
    """Take the next claim of a planned batch; return a committed batch back without one.

    Its mapping is read under the lock: who adds columns holds the lock, too.

    Raises:
        Fenced: The batch is superseded or rolled back.
        ConfigError: There is no such batch.
    """
    standing = lock_standing(cursor, batch_id)
    if standing.state is BatchState.PLANNED:
        claim = fetch_rows(cursor, "claim_batch", batch_id=batch_id)[0]["claim"]
        run_query(cursor, "claim_hold", batch_id=batch_id, claim=claim, hold_seconds=hold_seconds)
    elif standing.state is not BatchState.COMMITTED:
        raise _not_claimable(batch_id, standing)
    batch = load_batch(cursor, batch_id)
    assert batch is not None  # noqa: S101 - its row is locked
    added = load_added_columns(cursor, batch.pipeline, batch.settings.target)
    return replace(batch, settings=with_added_columns(batch.settings, added))


def lock_standing(cursor: Cursor, batch_id: str) -> BatchStanding:
    """Lock the batch row and read its standing: final, because a COMMIT under way was waited for.

    Raises:
        ConfigError: There is no such batch.
    """
    row = fetch_row(cursor, "lock_batch", batch_id=batch_id) if is_batch_id(batch_id) else None
    if row is None:
        raise no_such_batch(batch_id)
    return standing_of(row)


def no_such_batch(batch_id: str) -> IngestError:
    """Return the error for a batch id that the ledger does not know."""
    return ConfigError(
        "the ledger has no such batch",
        expected="a batch that the plan step recorded in this database",
        found=batch_id,
        next_command="python -m kafka_ingest batches",
        batch_id=batch_id,
    )


def is_locked(error: LockTimeout) -> Busy:
    """Return the error for a plan or claim that another session keeps waiting: a large publish takes minutes."""
    return Busy(
        "another session has the batch locked, most likely an attempt that publishes it",
        expected="the rows of pipeline and batch free within the lock time-out",
        found=error.found,
        next_command="none: it is asked for again; pg_stat_activity shows the session",
    )


def _not_claimable(batch_id: str, standing: BatchStanding) -> Fenced:
    return Fenced(
        "the batch can no longer be loaded",
        expected="state planned or committed",
        found=f"state {standing.state.value}",
        next_command="none, or clear the whole run: its plan step records a new batch",
        batch_id=batch_id,
    )


# ----------
# What an audit asks the ledger: the invariants of ``sql/invariants``.

#: How far back the invariants look. Every audit looks, so each range is seen many times; a bound keeps an audit quick
#: when the ledger has millions of rows. 1,000 batches are six weeks of hourly runs.
_NEWEST_BATCHES = 1_000

#: One fault breaks many rows: these of an invariant are enough to see which.
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


#: Invariants of the target, which have identifiers and parameters of their own.
_OF_TARGET = (TARGET_INVARIANT, STATE_INVARIANT, REPLAY_INVARIANT, WHOLE_STATE_INVARIANT)


def find_violations(cursor: Cursor, pipeline: str) -> list[Violation]:
    """Run every invariant for a pipeline; the cursor's transaction should be a snapshot.

    Raises:
        TargetMismatch: The target table, or one of its metadata columns, is no longer there.
    """
    found: list[Violation] = []
    for name in sql_names("invariants"):
        if name not in _OF_TARGET:
            cursor.execute(sql_text(f"invariants/{name}"), {"pipeline": pipeline, "newest_batches": _NEWEST_BATCHES})
            found += _violations(name, rows_of(cursor, _ROWS_PER_INVARIANT))
    return found + _target_violations(cursor, pipeline) + _replay_violations(cursor, pipeline)


def _target_violations(cursor: Cursor, pipeline: str) -> list[Violation]:
    newest = fetch_row(cursor, "newest_committed_batch", pipeline=pipeline)
    batch = load_batch(cursor, newest["batch_id"]) if newest else None
    if batch is None or not batch.ranges:
        return []
    target, upsert = batch.settings.target, batch.settings.upsert
    parameters: dict[str, object] = {"pipeline": pipeline, "batch_id": batch.batch_id}
    if upsert is None:
        return _violations_in(cursor, TARGET_INVARIANT, target, _identity(cursor, batch), parameters)
    parameters["marks"] = upsert.deletes is Deletes.MARK
    names = {"batch_column": sql.Identifier(batch.settings.metadata.batch_id)}
    return _violations_in(cursor, STATE_INVARIANT, target, _identity(cursor, batch), parameters, names)


def _replay_violations(cursor: Cursor, pipeline: str) -> list[Violation]:
    row = fetch_row(cursor, "select_replay_to_audit", pipeline=pipeline)
    bound = fetch_row(cursor, "select_pipeline", pipeline=pipeline) if row else None
    if row is None or bound is None:
        return []
    record = pipeline_of(bound)
    if record.upsert:  # a newer record of the key may have written over the row since
        return []
    target, parameters = TargetSettings(record.target_schema, record.target_table), {"pipeline": pipeline, **row}
    return _violations_in(cursor, REPLAY_INVARIANT, target, record.identity, parameters)


def _violations_in(
    cursor: Cursor,
    name: str,
    target: TargetSettings,
    identity: IdentityColumns,
    parameters: Mapping[str, object],
    names: Identifiers | None = None,
) -> list[Violation]:
    try:
        statement = query_with_identifiers(
            f"invariants/{name}", **target_identifiers(target, identity), **(names or {})
        )
        cursor.execute(statement, parameters)
    except (psycopg2.errors.UndefinedTable, psycopg2.errors.UndefinedColumn) as error:
        raise target_is_gone(error, target, str(parameters["pipeline"])) from error
    return _violations(name, rows_of(cursor, _ROWS_PER_INVARIANT))


def find_state_violations(cursor: Cursor, pipeline: str) -> list[Violation]:
    """Look at every row of an upsert pipeline's table; none before its first plan.

    Raises:
        TargetMismatch: The target table, or one of its metadata columns, is no longer there.
    """
    bound = fetch_row(cursor, "select_pipeline", pipeline=pipeline)
    if bound is None:
        return []
    record = pipeline_of(bound)
    target = TargetSettings(record.target_schema, record.target_table)
    return _violations_in(cursor, WHOLE_STATE_INVARIANT, target, record.identity, {"pipeline": pipeline})


def _identity(cursor: Cursor, batch: Batch) -> IdentityColumns:
    """Return the names that the columns have now, of a batch that may have been loaded before they were renamed."""
    bound = fetch_row(cursor, "select_pipeline", pipeline=batch.pipeline)
    record, target = pipeline_of(bound) if bound else None, batch.settings.target
    if record is None or (record.target_schema, record.target_table) != (target.schema, target.table):
        return batch.settings.metadata.identity
    return record.identity


def _violations(invariant: str, rows: Sequence[Row]) -> list[Violation]:
    return [Violation(invariant, ", ".join(f"{name} {value}" for name, value in row.items())) for row in rows]


# ----------
# The ledger in PostgreSQL: port ``Ledger``, one transaction a method.
#
# Each has a connection of its own unless the caller keeps one: the heartbeat uses the ledger beside the load.


class PostgresLedger:
    """The ledger of the pipelines that load into one database.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; secrets stay in here.
        limits: Time-outs of its short transactions.
        sessions: Gives its connections; by default a new one for every call, which is safe in several threads.
    """

    def __init__(
        self,
        params: Mapping[str, object],
        limits: TransactionLimits = SHORT_TRANSACTION,
        *,
        sessions: Sessions | None = None,
    ) -> None:
        self._sessions = sessions or NewSessions(params)
        self._limits = limits

    def plan_view(self, pipeline: str, request: Request, target: TargetSettings) -> PlanView:
        """Read what a plan needs, at one moment."""
        with self._transaction("read the ledger", SNAPSHOT) as cursor:
            require_current_ledger(cursor)
            return read_plan_view(cursor, pipeline, request, target)

    def loaded_from(self, pipeline: str, since_ms: int) -> Mapping[TopicPartition, int]:
        """Return, by partition, the lowest offset of any committed range with records at or after a time."""
        with self._transaction("read loaded ranges", SNAPSHOT) as cursor:
            rows = fetch_rows(cursor, "loaded_from", pipeline=pipeline, since_ms=since_ms)
            return {TopicPartition(row["topic"], row["partition"]): row["range_start"] for row in rows}

    def record_plan(self, plan: NewPlan, seen: PlanView) -> Batch:
        """Record a plan, if the ledger still stands as it was seen; durable on return.

        Raises:
            LedgerMoved: Something decisive has changed; nothing was written.
            ConfigError: Another pipeline serves one of the topics into the target; nothing was written.
            Busy: Another session has the pipeline or the batch to supersede locked; nothing was written.
        """
        try:
            with self._transaction("record the plan") as cursor:
                return write_plan(cursor, plan, seen)
        except LockTimeout as error:
            raise is_locked(error) from error

    def batch(self, batch_id: str) -> Batch | None:
        """Read one batch."""
        if not is_batch_id(batch_id):
            return None
        with self._transaction("read a batch", SNAPSHOT) as cursor:
            require_current_ledger(cursor)
            return load_batch(cursor, batch_id)

    def batch_of(self, pipeline: str, request: Request) -> Batch | None:
        """Read the newest batch of a run, whatever its number and state."""
        with self._transaction("read the batch of a run", SNAPSHOT) as cursor:
            require_current_ledger(cursor)
            return load_own_batch(cursor, pipeline, request)

    def claim(self, batch_id: str, heartbeat_timeout_seconds: int) -> Batch:
        """Take the next claim of a planned batch; return a committed batch back as it is.

        Raises:
            Fenced: The batch is superseded or rolled back.
            Busy: Another session has the batch locked, as an attempt that publishes it.
        """
        try:
            with self._transaction("claim the batch") as cursor:
                require_current_ledger(cursor)
                return claim_batch(cursor, batch_id, heartbeat_timeout_seconds)
        except LockTimeout as error:
            raise is_locked(error) from error

    def heartbeat(
        self, batch_id: str, claim: int, *, step: str, progress: StageProgress, hold_seconds: int
    ) -> BatchStanding:
        """Extend the hold and store progress while ``claim`` is the newest; return the batch's standing.

        It waits for no lock.

        Raises:
            ConfigError: There is no such batch.
        """
        if not is_batch_id(batch_id):
            raise no_such_batch(batch_id)
        with self._transaction("store a heartbeat") as cursor:
            run_query(
                cursor,
                "extend_hold",
                batch_id=batch_id,
                claim=claim,
                hold_seconds=hold_seconds,
                step=step,
                staged_records=progress.records,
                staged_offsets=progress.offsets,
            )
            row = fetch_row(cursor, "select_standing", batch_id=batch_id)
        if row is None:
            raise no_such_batch(batch_id)
        return standing_of(row)

    def release_hold(self, batch_id: str, claim: int) -> None:
        """End the hold of a batch now, while ``claim`` is the newest; it waits for no lock."""
        if not is_batch_id(batch_id):
            return
        with self._transaction("release the hold") as cursor:
            run_query(cursor, "release_hold", batch_id=batch_id, claim=claim)

    def caught_up(self, pipeline: str) -> Mapping[TopicPartition, datetime | None]:
        """Return when a published plan last reached the end of each partition; ``None``: never."""
        with self._transaction("read how far deletes were read", SNAPSHOT) as cursor:
            rows = fetch_rows(cursor, "select_caught_up", pipeline=pipeline)
            return {TopicPartition(row["topic"], row["partition"]): row["caught_up_at"] for row in rows}

    def settle(self, batch_id: str) -> BatchStanding:
        """Read a batch's standing ``FOR UPDATE``: what it says is final.

        Raises:
            CommitStateUnknown: The row could not be locked in time: the COMMIT may still be under way.
        """
        try:
            with self._transaction("learn the outcome of COMMIT") as cursor:
                return lock_standing(cursor, batch_id)
        except LockTimeout as error:
            raise CommitStateUnknown(
                "the answer to COMMIT was lost and the batch is still locked",
                expected=f"the batch row to be free within {self._limits.lock_timeout_seconds:g} seconds",
                found=error.found,
                next_command="none: a retry finds the batch committed or loads it again",
                batch_id=batch_id,
            ) from error

    def hold(self, batch_id: str) -> Hold | None:
        """Read the hold of a batch."""
        if not is_batch_id(batch_id):
            return None
        with self._transaction("read the hold", SNAPSHOT) as cursor:
            row = fetch_row(cursor, "select_hold", batch_id=batch_id)
            return hold_of(row) if row else None

    def unannounced(self, pipeline: str, request: Request) -> Sequence[Batch]:
        """Return committed batches that nobody announced, those that ``request`` announced, its own; oldest first."""
        asked = {"announced_by": announcer(request), **request_parameters(request)}
        with self._transaction("read unannounced batches", SNAPSHOT) as cursor:
            rows = fetch_rows(cursor, "find_unannounced_batches", pipeline=pipeline, **asked)
            return load_batches(cursor, [row["batch_id"] for row in rows])

    def mark_announced(self, batch_ids: Sequence[str], request: Request) -> None:
        """Store that ``request`` announces these batches; one that is announced already stays with its announcer."""
        with self._transaction("store the announcement") as cursor:
            run_query(cursor, "mark_announced", batch_ids=list(batch_ids), announced_by=announcer(request))

    def dead_letter_groups(self, batch_id: str) -> Sequence[DeadLetterGroup]:
        """Count the dead letters of a batch by reason, the most frequent first."""
        if not is_batch_id(batch_id):
            return []
        with self._transaction("count dead letters", SNAPSHOT) as cursor:
            return [
                DeadLetterGroup(
                    row["reason"], row["records"], TopicPartition(row["topic"], row["partition"]), row["offset"]
                )
                for row in fetch_rows(cursor, "count_dead_letters_by_reason", batch_id=batch_id)
            ]

    def violations(self, pipeline: str) -> Sequence[Violation]:
        """Run every invariant for a pipeline, all at one moment; empty when all hold."""
        with self._transaction("check the invariants", SNAPSHOT) as cursor:
            require_current_ledger(cursor)
            return find_violations(cursor, pipeline)

    def state_violations(self, pipeline: str) -> Sequence[Violation]:
        """Look at every row that an upsert pipeline's table has, and at every removed key."""
        with self._transaction("check the whole state", SNAPSHOT) as cursor:
            require_current_ledger(cursor)
            return find_state_violations(cursor, pipeline)

    def audited(self, pipeline: str) -> Audited:
        """Return what :meth:`violations` looks at."""
        with self._transaction("read what was audited", SNAPSHOT) as cursor:
            [row] = fetch_rows(cursor, "audited_batches", pipeline=pipeline, newest_batches=_NEWEST_BATCHES)
            return Audited(**row)

    @contextmanager
    def _transaction(self, doing: str, limits: TransactionLimits | None = None) -> Iterator[Cursor]:
        with (
            self._sessions.use("kafka_ingest ledger") as connection,
            database_faults(doing),
            transaction(connection, limits or self._limits) as cursor,
        ):
            yield cursor


# ----------
# Port ``Attempts``.

#: Nobody should wait for a record that nothing depends on.
_ATTEMPT_LIMITS = TransactionLimits(lock_timeout_seconds=2, idle_timeout_seconds=10)
_ATTEMPT_CONNECT_SECONDS = 5
#: Longer than any message for people.
_MOST_MESSAGE = 20_000


class PostgresAttempts:
    """What became of each try of a step, in the ledger. Each record is one short transaction of its own.

    Args:
        sessions: Gives its connections.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def record(self, attempt: Attempt) -> None:
        """Record a try as it stands now.

        Raises:
            IngestError: It could not be recorded.
        """
        request, phases = attempt.request, attempt.phases
        with (
            self._sessions.use("kafka_ingest attempt", connect_timeout_seconds=_ATTEMPT_CONNECT_SECONDS) as connection,
            database_faults("record what became of this try"),
            transaction(connection, _ATTEMPT_LIMITS) as cursor,
        ):
            require_current_ledger(cursor)
            run_query(
                cursor,
                "record_attempt",
                pipeline=attempt.pipeline,
                step=attempt.step.value,
                batch_id=attempt.batch_id,
                dag_id=request.dag_id,
                run_id=request.run_id,
                task_id=attempt.task_id,
                map_index=request.map_index,
                try_number=attempt.try_number,
                seconds=attempt.seconds,
                outcome=attempt.outcome.value if attempt.outcome else None,
                fault=attempt.fault,
                message=_storable(attempt.message),
                session_seconds=phases.session if phases else None,
                stage_seconds=phases.stage if phases else None,
                publish_seconds=phases.publish if phases else None,
                spark_application_id=attempt.spark_application_id,
                spark_ui_url=attempt.spark_ui_url,
            )


def _storable(text: str | None) -> str | None:
    """Return a text that PostgreSQL can hold: a message may quote what stood in a record."""
    if text is None:
        return None
    readable = text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
    return readable if len(readable) <= _MOST_MESSAGE else readable[:_MOST_MESSAGE] + " ..."
