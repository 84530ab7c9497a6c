"""The one optimistic write of the ledger, which plan, change and roll-back share; and the plan, which adds a batch.

A write is decided from a view, outside any transaction. Then one transaction locks the pipeline, compares the ledger
with that view and supersedes the outstanding batch (:func:`begin_write`), moves positions where each still stands as it
was seen (:func:`move_positions`), and says who did it and why (:func:`record_changes`). In between a plan serves
topics, a change binds the pipeline, and a roll-back deletes rows.

Locks: pipeline, then batch, then positions by (topic, partition).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import uuid4

import psycopg2

from kafka_ingest.errors import CommitStateUnknown, ConfigError, LedgerMoved
from kafka_ingest.postgres import rows
from kafka_ingest.postgres.database import Cursor, fetch_row, fetch_rows, run_query
from kafka_ingest.protocol.batch import Batch, RecordCounts, Request
from kafka_ingest.protocol.decisions import ChangeKind, NewPlan
from kafka_ingest.protocol.ledger_view import LedgerWrite, PlanView, PositionChange, PositionMove, ServedTopic, View
from kafka_ingest.settings import PROTOCOL_VERSION, TargetSettings


def read_plan_view(cursor: Cursor, pipeline: str, request: Request, target: TargetSettings) -> PlanView:
    """Read what a plan needs. In a snapshot all parts are of one moment."""
    observations = fetch_rows(cursor, "select_observations", pipeline=pipeline)
    decisive = read_decisive(cursor, pipeline, request, target)
    return replace(
        decisive,
        observations=tuple(rows.observation_of(row) for row in observations),
        added_columns=tuple(rows.load_added_columns(cursor, pipeline, target)),
        needs_rebuild=rows.need_of_rebuild(fetch_row(cursor, "select_need_of_rebuild", pipeline=pipeline)),
    )


def read_decisive(cursor: Cursor, pipeline: str, request: Request, target: TargetSettings) -> PlanView:
    """Read what must still stand when something is recorded: neither observations nor added columns."""
    clock = fetch_rows(cursor, "read_clock")[0]["clock_timestamp"]
    bound = fetch_row(cursor, "select_pipeline", pipeline=pipeline)
    positions = fetch_rows(cursor, "select_positions", pipeline=pipeline)
    served = fetch_rows(cursor, "select_served_topics", target_schema=target.schema, target_table=target.table)
    outstanding = fetch_row(cursor, "find_outstanding_batch", pipeline=pipeline)
    hold = fetch_row(cursor, "select_hold", batch_id=outstanding["batch_id"]) if outstanding else None
    return PlanView(
        now=clock,
        pipeline=rows.pipeline_of(bound) if bound else None,
        positions=tuple(rows.position_of(row) for row in positions),
        served=tuple(ServedTopic(**row) for row in served),
        outstanding=rows.load_batch(cursor, outstanding["batch_id"]) if outstanding else None,
        hold=rows.hold_of(hold) if hold else None,
        own=load_own_batch(cursor, pipeline, request),
    )


def load_own_batch(cursor: Cursor, pipeline: str, request: Request) -> Batch | None:
    """Read the newest batch of a run, whatever its number and state; ``None`` when there is none."""
    own = fetch_row(cursor, "find_request_batch", pipeline=pipeline, **rows.request_parameters(request))
    return rows.load_batch(cursor, own["batch_id"]) if own else None


# ----------
# The write that plan, change and roll-back share.


def begin_write(cursor: Cursor, write: LedgerWrite, read_again: Callable[[], View]) -> None:
    """Lock the pipeline, compare the ledger with what was seen, and supersede the outstanding batch.

    Statements of this transaction may each see a publish that ends between them. That cannot hide a change: whatever
    the publish moved after it was compared, it also took the outstanding batch that is to be superseded.

    Args:
        cursor: The transaction.
        write: What must be true.
        read_again: Reads in the transaction what ``write.seen`` was read from.

    Raises:
        LedgerMoved: The ledger does not stand as it was seen.
    """
    if run_query(cursor, "lock_pipeline", pipeline=write.pipeline) != 1:
        raise write.moved(f"no pipeline of the name {write.pipeline}")
    write.require(read_again())
    if write.supersedes is None:
        return
    if run_query(cursor, "supersede_batch", batch_id=write.supersedes, pipeline=write.pipeline) != 1:
        raise write.moved(f"batch {write.supersedes} is no longer planned")
    run_query(cursor, "delete_hold", batch_id=write.supersedes)


def move_positions(cursor: Cursor, write: LedgerWrite, moves: Sequence[PositionMove]) -> None:
    """Move positions, all of them or none: each must still stand where its move begins.

    Raises:
        LedgerMoved: One does not.
    """
    if not moves:
        return
    pipeline = write.pipeline
    moved = [(move.before, move.after) for move in moves if move.before and move.after]
    before, after = [b for b, _ in moved], [a for _, a in moved]
    gone = [move.before for move in moves if move.before and not move.after]
    new = [move.after for move in moves if move.after and not move.before]
    run_query(cursor, "lock_positions", pipeline=pipeline, **rows.place_arrays([*before, *gone]))
    changed = run_query(
        cursor, "change_positions", pipeline=pipeline, **rows.position_arrays(after), **rows.before_arrays(before)
    )
    changed += run_query(
        cursor, "delete_positions", pipeline=pipeline, **rows.place_arrays(gone), **rows.before_arrays(gone)
    )
    if changed != len(moved) + len(gone):
        raise write.moved(f"{changed} of {len(moved) + len(gone)} positions stand as they were seen")
    run_query(cursor, "insert_positions", pipeline=pipeline, **rows.position_arrays(new))


@dataclass(frozen=True, slots=True)
class Reason:
    """What rows of ``position_change`` tell beside the positions: which request, of which kind, by whom, and why."""

    pipeline: str
    request_id: str
    kind: str
    who: str
    why: str


def record_changes(
    cursor: Cursor,
    reason: Reason,
    changes: Sequence[PositionChange],
    details: Sequence[Mapping[str, Any]],
    *,
    topic: str | None = None,
) -> None:
    """Record changes of positions, one row each; without any, one row about ``topic`` or the whole pipeline.

    Args:
        cursor: The transaction.
        reason: Who changes them, and why.
        changes: What changes.
        details: What else each row tells.
        topic: The topic of a row that is about no partition.
    """
    arrays = (
        rows.change_arrays(changes, details) if changes else {**rows.change_arrays([None], details), "topic": [topic]}
    )
    run_query(cursor, "insert_position_changes", **asdict(reason), **arrays)


@contextmanager
def first_writer_wins(write: LedgerWrite) -> Iterator[None]:
    """Say that the ledger moved where a unique constraint refuses a second plan or change of the same kind."""
    try:
        yield
    except psycopg2.errors.UniqueViolation as error:
        raise write.moved(f"another one was first ({error.diag.constraint_name})") from error


@contextmanager
def done_once(request_id: str) -> Iterator[None]:
    """Say what to do where the answer to COMMIT was lost: the same request finds what it has recorded."""
    try:
        yield
    except CommitStateUnknown as unknown:
        unknown.next_command = f"ask again with the request id {request_id}: it is done once"
        raise


# ----------
# The plan: that write and a batch.


def write_plan(cursor: Cursor, plan: NewPlan, seen: PlanView) -> Batch:
    """Record a plan in the running transaction, if the ledger still stands as it was seen.

    Raises:
        LedgerMoved: It does not.
        ConfigError: Another pipeline serves one of the topics into the target.
    """
    write, batch_id = LedgerWrite(plan.pipeline, seen, plan.supersedes), str(uuid4())
    with first_writer_wins(write):
        is_first = seen.pipeline is None
        inserted = is_first and _insert_pipeline(cursor, plan)
        begin_write(cursor, write, lambda: _read_again(cursor, plan, without_pipeline=inserted))
        _insert_served_topics(cursor, plan, write, is_first=is_first)
        _move_positions(cursor, plan, write, batch_id)
        _insert_positions(cursor, plan, batch_id, is_first=is_first)
        _set_valid_through(cursor, plan)
        _store_observations(cursor, plan)
        _insert_batch(cursor, plan, batch_id)
    batch = rows.load_batch(cursor, batch_id)
    assert batch is not None  # noqa: S101 - this transaction has just inserted it
    return batch


def _read_again(cursor: Cursor, plan: NewPlan, *, without_pipeline: bool) -> PlanView:
    later = read_decisive(cursor, plan.pipeline, plan.request, plan.settings.target)
    return replace(later, pipeline=None) if without_pipeline else later


def _move_positions(cursor: Cursor, plan: NewPlan, write: LedgerWrite, batch_id: str) -> None:
    # A request id for each: a request changes a partition once, and a plan may adopt its id and skip its lag, too.
    pipeline, asks, request_id = plan.pipeline, str(plan.request), f"plan:{batch_id}"
    adopted, skipped = ChangeKind.TOPIC_ID_ADOPTED.value, ChangeKind.LAG_SKIPPED.value
    adopt = Reason(pipeline, f"{request_id}:topic_id", adopted, asks, "topic_identity: topic_id, none before")
    skip = Reason(pipeline, request_id, skipped, asks, "lag_policy: skip_to")
    for reason, moves in ((adopt, plan.choice.adopted), (skip, plan.choice.skips)):
        if moves:
            move_positions(cursor, write, moves)
            record_changes(cursor, reason, [move.change for move in moves], [{}] * len(moves))


def _insert_pipeline(cursor: Cursor, plan: NewPlan) -> bool:
    inserted = run_query(
        cursor,
        "insert_pipeline",
        pipeline=plan.pipeline,
        target_schema=plan.settings.target.schema,
        target_table=plan.settings.target.table,
        cluster_id=plan.cluster_id,
        isolation_level=plan.settings.isolation_level.value,
        first_run=rows.first_run_to_json(plan.first_run),
        upsert=rows.upsert_to_json(plan.settings.upsert),
        **rows.identity_parameters(plan.settings.metadata.identity),
    )
    return inserted == 1


def _insert_served_topics(cursor: Cursor, plan: NewPlan, write: LedgerWrite, *, is_first: bool) -> None:
    target = plan.settings.target
    inserted = fetch_rows(
        cursor,
        "insert_served_topics",
        target_schema=target.schema,
        target_table=target.table,
        cluster_id=plan.cluster_id,
        pipeline=plan.pipeline,
        joined_by="first_plan" if is_first else "later_plan",
        topics=sorted(plan.choice.new_topics),
    )
    refused = set(plan.choice.new_topics) - {row["topic"] for row in inserted}
    if refused:
        raise _served_already(cursor, plan, write, refused)


def _served_already(cursor: Cursor, plan: NewPlan, write: LedgerWrite, topics: set[str]) -> ConfigError | LedgerMoved:
    target = plan.settings.target
    served = fetch_rows(cursor, "select_served_topics", target_schema=target.schema, target_table=target.table)
    others = [
        f"{row['topic']}: pipeline {row['pipeline']}"
        for row in served
        if row["topic"] in topics and row["cluster_id"] == plan.cluster_id and row["pipeline"] != plan.pipeline
    ]
    if not others:
        return write.moved(f"topics are served already: {', '.join(sorted(topics))}")
    return ConfigError(
        f"another pipeline loads these topics into {target} already",
        expected="one pipeline for each target table, cluster and topic",
        found="; ".join(others),
        next_command="load into another table, or remove the topics from one of the pipeline files",
    )


def _insert_positions(cursor: Cursor, plan: NewPlan, batch_id: str, *, is_first: bool) -> None:
    if not plan.choice.new_positions:
        return
    arrays = rows.position_arrays(plan.choice.new_positions)
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
    known = plan.choice.valid_through
    if not known:
        return
    place = {"topic": [tp.topic for tp in known], "partition": [tp.partition for tp in known]}
    run_query(cursor, "lock_positions", pipeline=plan.pipeline, **place)
    times = list(known.values())
    run_query(cursor, "set_valid_through", pipeline=plan.pipeline, valid_through=times, **place)


def _store_observations(cursor: Cursor, plan: NewPlan) -> None:
    if plan.choice.observations:
        arrays = rows.observation_arrays(plan.choice.observations)
        run_query(cursor, "store_observations", pipeline=plan.pipeline, **arrays)


def _insert_batch(cursor: Cursor, plan: NewPlan, batch_id: str) -> None:
    run_query(
        cursor,
        "insert_batch",
        batch_id=batch_id,
        pipeline=plan.pipeline,
        **rows.request_parameters(plan.request),
        kind=plan.kind.value,
        settings=rows.settings_to_json(plan.settings),
        settings_hash=plan.settings_hash,
        protocol_version=PROTOCOL_VERSION,
        target_schema=plan.settings.target.schema,
        target_table=plan.settings.target.table,
        cluster_id=plan.cluster_id,
        planned_at=plan.planned_at,
        left_out=[str(fault) for fault in plan.choice.left_out],
        warnings=list(plan.choice.warnings),
    )
    if plan.choice.ranges:
        _insert_ranges(cursor, plan, batch_id)
    else:
        _commit_empty(cursor, plan, batch_id)


def _insert_ranges(cursor: Cursor, plan: NewPlan, batch_id: str) -> None:
    run_query(
        cursor, "insert_ranges", batch_id=batch_id, pipeline=plan.pipeline, **rows.range_arrays(plan.choice.ranges)
    )
    run_query(
        cursor,
        "insert_hold",
        batch_id=batch_id,
        hold_seconds=plan.hold.start_timeout_seconds,
        total_offsets=sum(r.span_offsets for r in plan.choice.ranges),
    )


def _commit_empty(cursor: Cursor, plan: NewPlan, batch_id: str) -> None:
    run_query(
        cursor,
        "commit_batch",
        batch_id=batch_id,
        claim=0,
        **asdict(RecordCounts()),
        record_time_min=None,
        record_time_max=None,
        valid_through=pipeline_valid_through(cursor, plan.pipeline),
        warnings=[],
    )


def pipeline_valid_through(cursor: Cursor, pipeline: str) -> object:
    """Return the time up to which all partitions of the pipeline are complete; ``None`` when one is unknown."""
    run_query(cursor, "pipeline_valid_through", pipeline=pipeline)
    row = cursor.fetchone()
    return row[0] if row else None
