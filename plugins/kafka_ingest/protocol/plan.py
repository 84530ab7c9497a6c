"""Step *plan*: read the ledger, ask Kafka, decide, record one batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_ingest.errors import (
    Busy,
    PartitionFault,
    PartitionStalled,
    RequestChanged,
    fault_error,
    naming,
)
from kafka_ingest.protocol.batch import Batch, BatchKind, BatchState, Request, RunOptions, run_options_of
from kafka_ingest.protocol.decisions import NewPlan, PlanChoice
from kafka_ingest.protocol.fold import with_dangers
from kafka_ingest.protocol.ledger_view import PlanView, require_bound_settings, until_it_stands, without_retired
from kafka_ingest.protocol.log import (
    LogSnapshot,
    StalledPartition,
    TimedOffset,
    headrooms,
    observe,
    short_headrooms,
    since_observation,
)
from kafka_ingest.protocol.new_columns import with_added_columns
from kafka_ingest.protocol.ports import Ledger, Log, RunStates, Target
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.ranges import LogTimes, choose_ranges
from kafka_ingest.protocol.staging import relaxed_gc
from kafka_ingest.settings import PROTOCOL_VERSION, OffsetLimit, PartitionFaultPolicy, PipelineSettings
from kafka_ingest.times import to_iso_text

# ----------
# What a request for a batch may do, given what the ledger holds: resume, plan anew, supersede, or come back later.


def numbered_request(view: PlanView, request: Request) -> Request:
    """Return the request of a plan its number: that of the run's newest batch, or the next one.

    The next one only where Airflow reprocesses a run by a backfill: the run was cleared since its newest batch was
    planned, and that batch is committed, or answers something else, as the live batch of a scheduled run that failed
    and is now to be reloaded. Every other clear, and every retry, asks for the batch that the run already has.
    """
    own = view.own
    if own is None:
        return request
    was_cleared = request.clear_number > own.request.clear_number
    is_answered = own.state is BatchState.COMMITTED or own.request.parameters != request.parameters
    return replace(request, number=own.request.number + (was_cleared and is_answered))


def standing_batch(view: PlanView, request: Request, settings_hash: str) -> Batch | None:
    """Return the batch that already answers the request, or ``None`` when it must be planned (anew).

    A committed batch answers for ever. A planned one answers while settings and protocol are those of this process. A
    superseded or rolled-back one does not answer.

    Raises:
        RequestChanged: The same request came before with other parameters.
    """
    own = view.own
    if own is None or own.request.number != request.number:
        return None
    if own.state in (BatchState.SUPERSEDED, BatchState.ROLLED_BACK):
        return None
    if own.request.parameters != request.parameters:
        raise RequestChanged(
            f"{request} asked before with other parameters",
            expected=own.request.parameters,
            found=request.parameters,
            next_command="start a new run with the new parameters; this run keeps its batch",
            batch_id=own.batch_id,
        )
    is_current = own.settings_hash == settings_hash and own.protocol_version == PROTOCOL_VERSION
    return own if own.state is BatchState.COMMITTED or is_current else None


def superseded_batch(view: PlanView, request: Request, is_finished: Callable[[Request], bool]) -> str | None:
    """Return the outstanding batch that a new plan replaces, or ``None`` when there is none.

    Superseding is safe at any moment, because publishing is fenced; waiting for a live holder only saves its work.

    Args:
        view: The ledger.
        request: Who asks.
        is_finished: Whether the run of a request has ended.

    Raises:
        Busy: Another request holds the pipeline and is alive.
    """
    outstanding = view.outstanding
    if outstanding is None:
        return None
    # Of the same run: the number grows when a backfill reprocesses it.
    is_own = replace(outstanding.request, number=request.number).identity == request.identity
    is_held = view.hold is not None and view.hold.hold_until > view.now
    if is_own or not is_held or is_finished(outstanding.request):
        return outstanding.batch_id
    assert view.hold is not None  # noqa: S101 - follows from is_held
    raise Busy(
        "another request holds the pipeline",
        expected="a free pipeline, or a holder that has ended or given no sign of life",
        found=(
            f"{outstanding.request}, step {view.hold.step}, {view.hold.staged_offsets} of {view.hold.total_offsets} "
            f"offsets staged, hold until {view.hold.hold_until.isoformat(timespec='seconds')}"
        ),
        next_command=(
            f"ask again after {view.hold.hold_until:%H:%M:%S} UTC: a holder that lives holds on, any other is replaced"
        ),
        batch_id=outstanding.batch_id,
    )


# ----------
# Whether a run is followed by another one at once, so that a backlog does not wait for the schedule.


def follow_up_run_id(batch: Batch) -> str:
    """Return the id of the run that follows a batch: the same however often it is asked for."""
    return f"follow_up__{batch.batch_id}"


def follow_up_form(batch: Batch, limit: OffsetLimit) -> dict[str, Any] | None:
    """Give the form of the run that goes on after a batch, or ``None`` where nothing follows.

    The next run does what this one would have done without the limit: up to the same bound, with the same decisions
    about what is read again, for the same reason. The limit is that of the pipeline file.

    Args:
        batch: The batch of the run that ends.
        limit: The pipeline's.
    """
    if why_nothing_follows(batch, limit):
        return None
    options = run_options_of(batch.request)
    form = {
        "to": None if options.until_ms is None else to_iso_text(options.until_ms),
        "reload_what_is_left": options.reload_what_is_left,
        "replace_resolved": options.replace_resolved,
        "reason": options.reason,
    }
    return {key: value for key, value in form.items() if value}


def why_nothing_follows(batch: Batch | None, limit: OffsetLimit) -> str:
    """Say why no run follows a batch; empty where one does.

    Only what is stored with the batch decides, so a retry decides the same: a live batch that used up the pipeline's
    limit may have left something over. That the limit was just enough costs one run that finds little or nothing.
    Who limits a run by hand wants so much and no more: nothing follows it.

    Args:
        batch: The batch of the run that ends; ``None`` where it planned none.
        limit: The pipeline's.
    """
    if batch is None:
        return "this run planned no batch"
    by_hand = run_options_of(batch.request).limit_offsets
    if batch.state is not BatchState.COMMITTED:
        return f"batch {batch.batch_id} is {batch.state.value}, not committed"
    if batch.kind is not BatchKind.LIVE:
        return "a reload reads its whole span"
    if by_hand is not None:
        return f"the run itself was limited to {by_hand:,} offsets"
    if not _used_up(batch, limit):
        return f"its {batch.span_offsets:,} offsets are below the limit of {limit.total_offsets:,}: all was read"
    return ""


def _used_up(batch: Batch, limit: OffsetLimit) -> bool:
    cap = limit.per_partition_offsets
    return batch.span_offsets >= limit.total_offsets or any(cap and r.span_offsets >= cap for r in batch.ranges)


# ----------
# What a plan watches beside its ranges: headroom that grows short, and open transactions that hang.


def watched(
    choice: PlanChoice, settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot, *, kind: BatchKind
) -> PlanChoice:
    """Compare what the plan saw with what earlier plans saw; the ranges stay as they are.

    Args:
        choice: What the plan chose.
        settings: The pipeline.
        view: The ledger, with the observations of earlier plans.
        snapshot: The log that the plan was made from.
        kind: Kind of run; a reload reads what was readable before, so no open transaction is in its way.

    Returns:
        The choice with observations to record, with partitions whose headroom is short, with stalled partitions that
        say since when, and with a fault for each that has stalled for longer than ``max_stalled_seconds``.
    """
    observations = observe(without_retired(view, snapshot), view.observations)
    seen = {observation.topic_partition: observation for observation in observations} if choice.stalled else {}
    stalled = tuple(since_observation(partition, seen[partition.where]) for partition in choice.stalled)
    found = (_stalled_fault(partition, settings) for partition in stalled if kind is BatchKind.LIVE)
    faults = tuple(fault for fault in found if fault)
    leaves_out = settings.plan.on_partition_fault is PartitionFaultPolicy.LEAVE_OUT
    known = headrooms((*view.positions, *choice.new_positions), observations)
    return replace(
        choice,
        stalled=stalled,
        faults=choice.faults if leaves_out else (*choice.faults, *faults),
        left_out=(*choice.left_out, *faults) if leaves_out else choice.left_out,
        short_headroom=short_headrooms(known, settings.watch),
        observations=observations,
    )


def _stalled_fault(stalled: StalledPartition, settings: PipelineSettings) -> PartitionFault | None:
    limit = settings.watch.max_stalled_seconds
    if limit is None or stalled.seconds < limit:
        return None
    return PartitionFault(
        PartitionStalled,
        str(stalled.where),
        expected=f"a last stable offset that moves within {limit} seconds (alerts.max_stalled_seconds)",
        found=f"readable up to {stalled.end_offset} for {stalled.seconds:.0f} seconds, "
        f"high watermark {stalled.high_watermark}",
        next_command="end the hanging transaction (kafka-transactions.sh find-hanging, then abort), clear the task; "
        "see docs/runbook.md, section PartitionStalled",
        can_be_left_out=True,
    )


# ----------
# Step *plan*: freeze the offset ranges of one request in the ledger.
#
# Order: read the ledger in one short transaction; ask Kafka outside any transaction; choose the ranges; record them in
# one short transaction that first checks that the ledger still stands as it was read. Running it again for the same
# request gives the same batch.

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlanPorts:
    """What planning needs from the world."""

    ledger: Ledger
    log: Log
    target: Target
    runs: RunStates


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """What a plan would record now: nothing was written.

    ``outstanding`` is a batch of another request that a plan would have to wait for or supersede.
    """

    choice: PlanChoice
    snapshot: LogSnapshot
    view: PlanView

    @property
    def outstanding(self) -> Batch | None:
        """The pipeline's planned batch, if there is one."""
        return self.view.outstanding


def plan_batch(
    settings: PipelineSettings,
    request: Request,
    ports: PlanPorts,
    *,
    settings_hash: str,
    on_snapshot: Callable[[LogSnapshot], None] = lambda _: None,
) -> Batch:
    """Return the batch of a request, planning it if need be.

    Durable on return: the batch with its ranges is in the ledger, ``planned``; or ``committed``, when it had been
    loaded before or has nothing to read.

    Args:
        settings: The pipeline.
        request: Who asks.
        ports: The world.
        settings_hash: Hash of ``settings.batch``.
        on_snapshot: Called with the log as a plan saw it; never, where the batch had been planned before.

    Raises:
        Busy: Another live request holds the pipeline.
        LedgerMoved: The ledger moved again and again while planning.
        StopAndCall: A fault of configuration, topics or positions; every one is listed.
        RetryLater: Kafka or PostgreSQL cannot be reached.
    """
    with naming(settings.pipeline), relaxed_gc():
        return until_it_stands(lambda: _plan_once(settings, request, ports, settings_hash, on_snapshot))


def preview_plan(settings: PipelineSettings, request: Request, ports: PlanPorts) -> PlanPreview:
    """Return what a plan would choose now, with its faults as values; write nothing."""
    with naming(settings.pipeline):
        view = ports.ledger.plan_view(settings.pipeline, request, settings.batch.target)
        snapshot, choice = _choose(settings, view, run_options_of(request), ports)
        return PlanPreview(choice, snapshot, view)


def _plan_once(
    settings: PipelineSettings,
    request: Request,
    ports: PlanPorts,
    settings_hash: str,
    on_snapshot: Callable[[LogSnapshot], None],
) -> Batch:
    view = ports.ledger.plan_view(settings.pipeline, request, settings.batch.target)
    request = numbered_request(view, request)
    if standing := standing_batch(view, request, settings_hash):
        return standing
    supersedes = superseded_batch(view, request, ports.runs.is_finished)
    require_bound_settings(view, settings)
    ports.target.prepare(with_added_columns(settings.batch, view.added_columns))
    if settings.batch.upsert and view.pipeline is None:
        ports.target.require_versions(settings.batch)
    options = run_options_of(request)
    if options.into_new_table:
        ports.target.require_replaceable(settings.batch)
    snapshot, choice = _choose(settings, view, options, ports)
    on_snapshot(snapshot)
    if choice.faults:
        raise fault_error(choice.faults, settings.pipeline)
    _warn(choice)
    plan = NewPlan(
        pipeline=settings.pipeline,
        request=request,
        kind=options.kind,
        settings=settings.batch,
        settings_hash=settings_hash,
        first_run=settings.plan.first_run,
        hold=settings.plan.hold,
        cluster_id=snapshot.cluster_id,
        planned_at=snapshot.taken_at,
        choice=choice,
        supersedes=supersedes,
    )
    return ports.ledger.record_plan(plan, view)


def _warn(choice: PlanChoice) -> None:
    for warning in choice.warnings:
        _log.warning("%s", warning)
    for where, record in choice.ignored_bounds.items():
        _log.warning("%s: the record at offset %s is from the future and ends no run", where, record.offset)


def _choose(
    settings: PipelineSettings, view: PlanView, options: RunOptions, ports: PlanPorts
) -> tuple[LogSnapshot, PlanChoice]:
    snapshot = ports.log.snapshot(settings.plan.topics, settings.batch.isolation_level)
    times = _log_times(settings, view, snapshot, options, ports)
    choice = choose_ranges(settings, view, snapshot, options=options, times=times)
    if settings.batch.upsert:
        choice = with_dangers(choice, settings, view, ports.log.delete_retentions(sorted(snapshot.topics)))
    return snapshot, watched(choice, settings, view, snapshot, kind=options.kind)


def _log_times(
    settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot, options: RunOptions, ports: PlanPorts
) -> LogTimes:
    readable = [
        TopicPartition(topic, number)
        for topic, state in snapshot.topics.items()
        for number, partition in state.partitions.items()
        if partition.end_offset is not None
    ]

    def offsets_at(time_ms: int | None) -> Mapping[TopicPartition, TimedOffset]:
        return {} if time_ms is None else ports.log.offsets_at(time_ms, readable)

    is_first, span = view.pipeline is None, options.times
    return LogTimes(
        first_run=offsets_at(settings.plan.first_run.timestamp_ms if is_first else None),
        until=offsets_at(options.until_ms),
        span_start=offsets_at(span.start_ms if span else None),
        span_end=offsets_at(span.end_ms if span else None),
        loaded_from=ports.ledger.loaded_from(settings.pipeline, span.start_ms) if span else {},
    )
