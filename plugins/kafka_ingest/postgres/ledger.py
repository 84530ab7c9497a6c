"""The ledger: plans, claims, audits and everything that a step reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

import psycopg2
from psycopg2 import sql

from kafka_ingest.errors import (
    Busy,
    CommitStateUnknown,
    ConfigError,
    Fenced,
    IngestError,
    LedgerMoved,
    LockTimeout,
    TargetMismatch,
)
from kafka_ingest.postgres.database import (
    SHORT_TRANSACTION,
    SNAPSHOT,
    Cursor,
    NewSessions,
    Sessions,
    TransactionLimits,
    database_faults,
    sql_names,
    sql_text,
    transaction,
)
from kafka_ingest.postgres.migrations import require_current_ledger
from kafka_ingest.postgres.rows import (
    Row,
    announcer,
    before_arrays,
    fetch_row,
    fetch_rows,
    first_run_to_json,
    hold_of,
    identity_parameters,
    is_batch_id,
    load_batch,
    load_batches,
    move_arrays,
    observation_arrays,
    observation_of,
    pipeline_of,
    place_arrays,
    position_arrays,
    position_of,
    query_with_identifiers,
    range_arrays,
    request_parameters,
    rows_of,
    run_query,
    settings_to_json,
    standing_of,
)
from kafka_ingest.protocol.audit import TARGET_INVARIANT
from kafka_ingest.protocol.batch import Batch, BatchState, Hold, Request
from kafka_ingest.protocol.change_requests import ChangeKind
from kafka_ingest.protocol.ledger_view import NewPlan, PlanView, PositionMove, ServedTopic
from kafka_ingest.protocol.ports import BatchStanding, Violation
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.staging import DeadLetterGroup, StageProgress
from kafka_ingest.settings import PROTOCOL_VERSION, IdentityColumns, TargetSettings

# ----------
# What a plan reads from the ledger and records in it. Locks: pipeline, then batch, then positions.


def read_plan_view(cursor: Cursor, pipeline: str, request: Request, target: TargetSettings) -> PlanView:
    """Read what a plan needs. In a snapshot all parts are of one moment."""
    observations = fetch_rows(cursor, "select_observations", pipeline=pipeline)
    decisive = _read_decisive(cursor, pipeline, request, target)
    return replace(decisive, observations=tuple(observation_of(row) for row in observations))


def _read_decisive(cursor: Cursor, pipeline: str, request: Request, target: TargetSettings) -> PlanView:
    """Read what must still stand when the plan is recorded: all but the observations, a row for each partition."""
    clock = fetch_rows(cursor, "read_clock")[0]["clock_timestamp"]
    bound = fetch_row(cursor, "select_pipeline", pipeline=pipeline)
    positions = fetch_rows(cursor, "select_positions", pipeline=pipeline)
    served = fetch_rows(cursor, "select_served_topics", target_schema=target.schema, target_table=target.table)
    outstanding = fetch_row(cursor, "find_outstanding_batch", pipeline=pipeline)
    own = fetch_row(cursor, "find_request_batch", pipeline=pipeline, **request_parameters(request))
    hold = fetch_row(cursor, "select_hold", batch_id=outstanding["batch_id"]) if outstanding else None
    return PlanView(
        now=clock,
        pipeline=pipeline_of(bound) if bound else None,
        positions=tuple(position_of(row) for row in positions),
        served=tuple(ServedTopic(**row) for row in served),
        outstanding=load_batch(cursor, outstanding["batch_id"]) if outstanding else None,
        hold=hold_of(hold) if hold else None,
        own=load_batch(cursor, own["batch_id"]) if own else None,
    )


def write_plan(cursor: Cursor, plan: NewPlan, seen: PlanView) -> Batch:
    """Record a plan in the running transaction, if the ledger still stands as it was seen.

    Raises:
        LedgerMoved: It does not.
        ConfigError: Another pipeline serves one of the topics into the target.
    """
    try:
        _require_unmoved(cursor, plan, seen)
        _supersede(cursor, plan, seen)
        batch_id = str(uuid4())
        _insert_served_topics(cursor, plan, is_first=seen.pipeline is None)
        _adopt_topic_ids(cursor, plan, batch_id)
        _skip_lag(cursor, plan, batch_id)
        _insert_positions(cursor, plan, batch_id, is_first=seen.pipeline is None)
        _set_valid_through(cursor, plan)
        _store_observations(cursor, plan)
        _insert_batch(cursor, plan, batch_id)
    except psycopg2.errors.UniqueViolation as error:
        raise _moved(plan, f"another plan was first ({error.diag.constraint_name})") from error
    batch = load_batch(cursor, batch_id)
    assert batch is not None  # noqa: S101 - this transaction has just inserted it
    return batch


def _require_unmoved(cursor: Cursor, plan: NewPlan, seen: PlanView) -> None:
    """Locks the pipeline and compares the ledger with what was seen.

    Statements of this transaction may each see a publish that ends between them. That cannot hide a change: whatever
    the publish moved after it was compared, it also took the outstanding batch that :func:`_supersede` must find.
    """
    is_first = seen.pipeline is None and _insert_pipeline(cursor, plan)
    run_query(cursor, "lock_pipeline", pipeline=plan.pipeline)
    later = _read_decisive(cursor, plan.pipeline, plan.request, plan.settings.target)
    if is_first:
        later = replace(later, pipeline=None)
    if not seen.still_stands(later):
        raise _moved(plan, "positions, batches or served topics have changed")


def _insert_pipeline(cursor: Cursor, plan: NewPlan) -> bool:
    inserted = run_query(
        cursor,
        "insert_pipeline",
        pipeline=plan.pipeline,
        target_schema=plan.settings.target.schema,
        target_table=plan.settings.target.table,
        cluster_id=plan.cluster_id,
        isolation_level=plan.settings.isolation_level.value,
        first_run=first_run_to_json(plan.first_run),
        **identity_parameters(plan.settings.metadata.identity),
    )
    return inserted == 1


def _supersede(cursor: Cursor, plan: NewPlan, seen: PlanView) -> None:
    outstanding = seen.outstanding.batch_id if seen.outstanding else None
    if outstanding != plan.supersedes:
        raise _moved(plan, f"the outstanding batch is {outstanding}, the plan supersedes {plan.supersedes}")
    if outstanding is None:
        return
    if run_query(cursor, "supersede_batch", batch_id=outstanding, pipeline=plan.pipeline) != 1:
        raise _moved(plan, f"batch {outstanding} is no longer planned")
    run_query(cursor, "delete_hold", batch_id=outstanding)


def _insert_served_topics(cursor: Cursor, plan: NewPlan, *, is_first: bool) -> None:
    target = plan.settings.target
    inserted = fetch_rows(
        cursor,
        "insert_served_topics",
        target_schema=target.schema,
        target_table=target.table,
        cluster_id=plan.cluster_id,
        pipeline=plan.pipeline,
        joined_by="first_plan" if is_first else "later_plan",
        topics=sorted(plan.new_topics),
    )
    refused = set(plan.new_topics) - {row["topic"] for row in inserted}
    if refused:
        raise _served_already(cursor, plan, refused)


def _served_already(cursor: Cursor, plan: NewPlan, topics: set[str]) -> ConfigError | LedgerMoved:
    target = plan.settings.target
    served = fetch_rows(cursor, "select_served_topics", target_schema=target.schema, target_table=target.table)
    others = [
        f"{row['topic']}: pipeline {row['pipeline']}"
        for row in served
        if row["topic"] in topics and row["cluster_id"] == plan.cluster_id and row["pipeline"] != plan.pipeline
    ]
    if not others:
        return _moved(plan, f"topics are served already: {', '.join(sorted(topics))}")
    return ConfigError(
        f"another pipeline loads these topics into {target} already",
        expected="one pipeline for each target table, cluster and topic",
        found="; ".join(others),
        next_command="load into another table, or remove the topics from one of the pipeline files",
        pipeline=plan.pipeline,
    )


def _adopt_topic_ids(cursor: Cursor, plan: NewPlan, batch_id: str) -> None:
    # A request id of its own: a request changes a partition once, and the same plan may skip its lag, too.
    request_id, why = f"plan:{batch_id}:topic_id", "topic_identity: topic_id, none before"
    _move(cursor, plan, plan.adopted, kind=ChangeKind.TOPIC_ID_ADOPTED, request_id=request_id, why=why)


def _skip_lag(cursor: Cursor, plan: NewPlan, batch_id: str) -> None:
    request_id, why = f"plan:{batch_id}", "lag_policy: skip_to"
    _move(cursor, plan, plan.skips, kind=ChangeKind.LAG_SKIPPED, request_id=request_id, why=why)


def _move(
    cursor: Cursor, plan: NewPlan, moves: Sequence[PositionMove], *, kind: ChangeKind, request_id: str, why: str
) -> None:
    pairs = [(move.before, move.after) for move in moves if move.before and move.after]
    if not pairs:
        return
    before, after = [b for b, _ in pairs], [a for _, a in pairs]
    run_query(cursor, "lock_positions", pipeline=plan.pipeline, **place_arrays(before))
    changed = run_query(
        cursor, "change_positions", pipeline=plan.pipeline, **position_arrays(after), **before_arrays(before)
    )
    if changed != len(pairs):
        raise _moved(plan, f"{changed} of {len(pairs)} positions stand as they were seen ({kind.value})")
    run_query(
        cursor,
        "insert_position_changes",
        request_id=request_id,
        kind=kind.value,
        pipeline=plan.pipeline,
        who=str(plan.request),
        why=why,
        **move_arrays(moves),
    )


def _insert_positions(cursor: Cursor, plan: NewPlan, batch_id: str, *, is_first: bool) -> None:
    if not plan.new_positions:
        return
    arrays = position_arrays(plan.new_positions)
    run_query(cursor, "insert_positions", pipeline=plan.pipeline, **arrays)
    run_query(
        cursor,
        "insert_initialised_changes",
        request_id=f"plan:{batch_id}",
        pipeline=plan.pipeline,
        who=str(plan.request),
        why=f"first plan, first_run: {plan.first_run.kind.value}" if is_first else "partition joined later",
        **arrays,
    )


def _set_valid_through(cursor: Cursor, plan: NewPlan) -> None:
    known = plan.valid_through
    if not known:
        return
    place = {"topic": [tp.topic for tp in known], "partition": [tp.partition for tp in known]}
    run_query(cursor, "lock_positions", pipeline=plan.pipeline, **place)
    times = list(known.values())
    run_query(cursor, "set_valid_through", pipeline=plan.pipeline, valid_through=times, **place)


def _store_observations(cursor: Cursor, plan: NewPlan) -> None:
    if plan.observations:
        arrays = observation_arrays(plan.observations)
        run_query(cursor, "store_observations", pipeline=plan.pipeline, **arrays)


def _insert_batch(cursor: Cursor, plan: NewPlan, batch_id: str) -> None:
    run_query(
        cursor,
        "insert_batch",
        batch_id=batch_id,
        pipeline=plan.pipeline,
        **request_parameters(plan.request),
        clear_number=plan.request.clear_number,
        parameters=plan.request.parameters,
        kind=plan.kind.value,
        settings=settings_to_json(plan.settings),
        settings_hash=plan.settings_hash,
        protocol_version=PROTOCOL_VERSION,
        target_schema=plan.settings.target.schema,
        target_table=plan.settings.target.table,
        cluster_id=plan.cluster_id,
        planned_at=plan.planned_at,
        left_out=list(plan.left_out),
        warnings=list(plan.warnings),
    )
    if plan.ranges:
        _insert_ranges(cursor, plan, batch_id)
    else:
        _commit_empty(cursor, plan, batch_id)


def _insert_ranges(cursor: Cursor, plan: NewPlan, batch_id: str) -> None:
    run_query(cursor, "insert_ranges", batch_id=batch_id, pipeline=plan.pipeline, **range_arrays(plan.ranges))
    run_query(
        cursor,
        "insert_hold",
        batch_id=batch_id,
        hold_seconds=plan.hold.start_timeout_seconds,
        total_offsets=sum(r.span_offsets for r in plan.ranges),
    )


def _commit_empty(cursor: Cursor, plan: NewPlan, batch_id: str) -> None:
    zero = dict.fromkeys(("rows", "dead_letters", "tombstones", "filtered", "invisible"), 0)
    run_query(
        cursor,
        "commit_batch",
        batch_id=batch_id,
        claim=0,
        **zero,
        record_time_min=None,
        record_time_max=None,
        valid_through=pipeline_valid_through(cursor, plan.pipeline),
    )


def pipeline_valid_through(cursor: Cursor, pipeline: str) -> object:
    """Return the time up to which all partitions of the pipeline are complete; ``None`` when one is unknown."""
    run_query(cursor, "pipeline_valid_through", pipeline=pipeline)
    row = cursor.fetchone()
    return row[0] if row else None


def _moved(plan: NewPlan, found: str) -> LedgerMoved:
    return LedgerMoved(
        "the ledger moved while the batch was planned; nothing was recorded",
        expected="the ledger as it was read at the beginning of the plan",
        found=found,
        next_command="none: the plan is made again",
        pipeline=plan.pipeline,
    )


# ----------
# Claims, heartbeats, and the standing of a batch. Locks: batch, then hold.


def claim_batch(cursor: Cursor, batch_id: str, hold_seconds: int) -> Batch:
    """Take the next claim of a planned batch; return a committed batch back as it is.

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
    return batch


def lock_standing(cursor: Cursor, batch_id: str) -> BatchStanding:
    """Locks the batch row and reads its standing: final, because a COMMIT under way was waited for.

    Raises:
        ConfigError: There is no such batch.
    """
    row = fetch_row(cursor, "lock_batch", batch_id=batch_id) if is_batch_id(batch_id) else None
    if row is None:
        raise no_such_batch(batch_id)
    return standing_of(row)


def extend_hold(
    cursor: Cursor, batch_id: str, claim: int, *, step: str, progress: StageProgress, hold_seconds: int
) -> BatchStanding:
    """Extend the hold of the newest claim, without waiting for locks; return the batch's standing.

    Raises:
        ConfigError: There is no such batch.
    """
    if not is_batch_id(batch_id):
        raise no_such_batch(batch_id)
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


def release_hold(cursor: Cursor, batch_id: str, claim: int) -> None:
    """End the hold of a claim that is the newest, without waiting for locks; else it changes nothing."""
    if is_batch_id(batch_id):
        run_query(cursor, "release_hold", batch_id=batch_id, claim=claim)


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
        pipeline=error.pipeline,
        batch_id=error.batch_id,
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
# What an audit asks the ledger: unannounced batches, and the invariants of ``sql/invariants``.

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
    """Return committed batches that nobody announced, those that ``request`` announced, and its own; oldest first."""
    rows = fetch_rows(
        cursor,
        "find_unannounced_batches",
        pipeline=pipeline,
        announced_by=announcer(request),
        **request_parameters(request),
    )
    return load_batches(cursor, [row["batch_id"] for row in rows])


def mark_announced(cursor: Cursor, batch_ids: Sequence[str], request: Request) -> None:
    """Store that ``request`` announces these batches; one that is announced already stays with its announcer."""
    run_query(cursor, "mark_announced", batch_ids=list(batch_ids), announced_by=announcer(request))


def find_violations(cursor: Cursor, pipeline: str) -> list[Violation]:
    """Run every invariant for a pipeline; the cursor's transaction should be a snapshot.

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
    """Return the error of a table, or of a column that identifies its rows, that is not there."""
    return TargetMismatch(
        "the target table no longer fits the batches that were loaded into it",
        expected=f"table {target} with its metadata columns",
        found=error.diag.message_primary or "",
        next_command="restore the table or the column, then run python -m kafka_ingest audit",
        pipeline=pipeline,
    )


def _identity(cursor: Cursor, batch: Batch) -> IdentityColumns:
    """Return the names that the columns have now, of a batch that may have been loaded before they were renamed."""
    bound = fetch_row(cursor, "select_pipeline", pipeline=batch.pipeline)
    record, target = pipeline_of(bound) if bound else None, batch.settings.target
    if record is None or (record.target_schema, record.target_table) != (target.schema, target.table):
        return batch.settings.metadata.identity
    return record.identity


def target_identifiers(target: TargetSettings, identity: IdentityColumns) -> dict[str, sql.Composable]:
    """Return the identifiers of the target and of the columns that tell a row's identity, for an SQL file."""
    return {
        "target": sql.Identifier(target.schema, target.table),
        "topic": sql.Identifier(identity.topic),
        "generation": sql.Identifier(identity.generation),
        "partition": sql.Identifier(identity.partition),
        "offset_column": sql.Identifier(identity.offset),
    }


def _violations(invariant: str, rows: Sequence[Row]) -> list[Violation]:
    return [Violation(invariant, ", ".join(f"{name} {value}" for name, value in row.items())) for row in rows]


# ----------
# The ledger in PostgreSQL: port ``Ledger``, one transaction a method.
#
# Each has a connection of its own unless the caller keeps one: the heartbeat uses the ledger beside the load. What each
# method does stands in ``postgres_plan``, ``postgres_claim`` and ``postgres_audit``.


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
        with self._transaction("read the ledger", SNAPSHOT, pipeline=pipeline) as cursor:
            require_current_ledger(cursor)
            return read_plan_view(cursor, pipeline, request, target)

    def loaded_from(self, pipeline: str, since_ms: int) -> Mapping[TopicPartition, int]:
        """Return, by partition, the lowest offset of any committed range with records at or after a time."""
        with self._transaction("read loaded ranges", SNAPSHOT, pipeline=pipeline) as cursor:
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
            with self._transaction("record the plan", pipeline=plan.pipeline) as cursor:
                return write_plan(cursor, plan, seen)
        except LockTimeout as error:
            raise is_locked(error) from error

    def batch(self, batch_id: str) -> Batch | None:
        """Read one batch."""
        if not is_batch_id(batch_id):
            return None
        with self._transaction("read a batch", SNAPSHOT, batch_id=batch_id) as cursor:
            return load_batch(cursor, batch_id)

    def claim(self, batch_id: str, heartbeat_timeout_seconds: int) -> Batch:
        """Take the next claim of a planned batch; return a committed batch back as it is.

        Raises:
            Fenced: The batch is superseded or rolled back.
            Busy: Another session has the batch locked, as an attempt that publishes it.
        """
        try:
            with self._transaction("claim the batch", batch_id=batch_id) as cursor:
                require_current_ledger(cursor)
                return claim_batch(cursor, batch_id, heartbeat_timeout_seconds)
        except LockTimeout as error:
            raise is_locked(error) from error

    def heartbeat(
        self, batch_id: str, claim: int, *, step: str, progress: StageProgress, hold_seconds: int
    ) -> BatchStanding:
        """Extend the hold and store progress while ``claim`` is the newest; return the batch's standing."""
        with self._transaction("store a heartbeat", batch_id=batch_id) as cursor:
            return extend_hold(cursor, batch_id, claim, step=step, progress=progress, hold_seconds=hold_seconds)

    def release_hold(self, batch_id: str, claim: int) -> None:
        """End the hold of a batch now, while ``claim`` is the newest."""
        with self._transaction("release the hold", batch_id=batch_id) as cursor:
            release_hold(cursor, batch_id, claim)

    def settle(self, batch_id: str) -> BatchStanding:
        """Read a batch's standing ``FOR UPDATE``: what it says is final.

        Raises:
            CommitStateUnknown: The row could not be locked in time: the COMMIT may still be under way.
        """
        try:
            with self._transaction("learn the outcome of COMMIT", batch_id=batch_id) as cursor:
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
        with self._transaction("read the hold", SNAPSHOT, batch_id=batch_id) as cursor:
            row = fetch_row(cursor, "select_hold", batch_id=batch_id)
            return hold_of(row) if row else None

    def unannounced(self, pipeline: str, request: Request) -> Sequence[Batch]:
        """Return committed batches that nobody announced, those that ``request`` announced, and its own."""
        with self._transaction("read unannounced batches", SNAPSHOT, pipeline=pipeline) as cursor:
            return find_unannounced(cursor, pipeline, request)

    def mark_announced(self, batch_ids: Sequence[str], request: Request) -> None:
        """Store that ``request`` announces these batches."""
        with self._transaction("store the announcement") as cursor:
            mark_announced(cursor, batch_ids, request)

    def dead_letter_groups(self, batch_id: str) -> Sequence[DeadLetterGroup]:
        """Count the dead letters of a batch by reason, the most frequent first."""
        if not is_batch_id(batch_id):
            return []
        with self._transaction("count dead letters", SNAPSHOT, batch_id=batch_id) as cursor:
            return [
                DeadLetterGroup(
                    row["reason"], row["records"], TopicPartition(row["topic"], row["partition"]), row["offset"]
                )
                for row in fetch_rows(cursor, "count_dead_letters_by_reason", batch_id=batch_id)
            ]

    def violations(self, pipeline: str) -> Sequence[Violation]:
        """Run every invariant for a pipeline, all at one moment; empty when all hold."""
        with self._transaction("check the invariants", SNAPSHOT, pipeline=pipeline) as cursor:
            require_current_ledger(cursor)
            return find_violations(cursor, pipeline)

    def audited(self, pipeline: str) -> Audited:
        """Says what :meth:`violations` looks at."""
        with self._transaction("read what was audited", SNAPSHOT, pipeline=pipeline) as cursor:
            return audited(cursor, pipeline)

    @contextmanager
    def _transaction(
        self,
        doing: str,
        limits: TransactionLimits | None = None,
        *,
        pipeline: str | None = None,
        batch_id: str | None = None,
    ) -> Iterator[Cursor]:
        with (
            self._sessions.use("kafka_ingest ledger") as connection,
            database_faults(doing, pipeline=pipeline, batch_id=batch_id),
            transaction(connection, limits or self._limits) as cursor,
        ):
            yield cursor
