"""What a plan reads from the ledger and records in it. Locks: pipeline, then batch, then positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import psycopg2

from kafka_ingest.adapters.postgres_change_rows import before_arrays, move_arrays, place_arrays
from kafka_ingest.adapters.postgres_connection import Cursor
from kafka_ingest.adapters.postgres_rows import (
    fetch_row,
    fetch_rows,
    hold_of,
    identity_parameters,
    load_batch,
    observation_arrays,
    observation_of,
    pipeline_of,
    position_arrays,
    position_of,
    range_arrays,
    request_parameters,
    run_query,
)
from kafka_ingest.adapters.settings_json import first_run_to_json, settings_to_json
from kafka_ingest.core.batch import Batch, Request
from kafka_ingest.core.change_requests import ChangeKind
from kafka_ingest.core.errors import ConfigError, LedgerMoved
from kafka_ingest.core.ledger_view import PlanView, ServedTopic
from kafka_ingest.core.new_plan import NewPlan
from kafka_ingest.core.position_changes import PositionMove
from kafka_ingest.core.settings import PROTOCOL_VERSION, TargetSettings


def read_plan_view(cursor: Cursor, pipeline: str, request: Request, target: TargetSettings) -> PlanView:
    """Reads what a plan needs. In a snapshot all parts are of one moment."""
    observations = fetch_rows(cursor, "select_observations", pipeline=pipeline)
    decisive = _read_decisive(cursor, pipeline, request, target)
    return replace(decisive, observations=tuple(observation_of(row) for row in observations))


def _read_decisive(cursor: Cursor, pipeline: str, request: Request, target: TargetSettings) -> PlanView:
    """Reads what must still stand when the plan is recorded: all but the observations, a row for each partition."""
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
    """Records a plan in the running transaction, if the ledger still stands as it was seen.

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
    """Gives the time up to which all partitions of the pipeline are complete; ``None`` when one is unknown."""
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
