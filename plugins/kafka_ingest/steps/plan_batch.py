"""Step *plan*: freeze the offset ranges of one request in the ledger.

Order: read the ledger in one short transaction; ask Kafka outside any transaction; choose the ranges; record them in
one short transaction that first checks that the ledger still stands as it was read. Running it again for the same
request gives the same batch.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_ingest.core.batch import Batch, Request
from kafka_ingest.core.errors import LedgerMoved
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.log_state import LogSnapshot, TimedOffset
from kafka_ingest.core.new_plan import NewPlan
from kafka_ingest.core.offsets import TopicPartition
from kafka_ingest.core.partition_faults import fault_error
from kafka_ingest.core.plan_watch import watched
from kafka_ingest.core.planning import PlanChoice, choose_ranges
from kafka_ingest.core.ports import Ledger, Log, RunStates, Target
from kafka_ingest.core.range_rule import LogTimes
from kafka_ingest.core.requests import numbered_request, require_bound_settings, standing_batch, superseded_batch
from kafka_ingest.core.run_options import RunOptions, run_options_of
from kafka_ingest.core.settings import PipelineSettings
from kafka_ingest.steps.rare_collections import rare_collections

_log = logging.getLogger(__name__)

#: How often a plan starts over when the ledger moves under it. Each time somebody else got something recorded, so a
#: handful is enough unless dozens of runs of one pipeline start at the same moment; Airflow's retry covers those.
_PLAN_ATTEMPTS = 5


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


def plan_batch(settings: PipelineSettings, request: Request, ports: PlanPorts, *, settings_hash: str) -> Batch:
    """Gives the batch of a request, planning it if need be.

    Durable on return: the batch with its ranges is in the ledger, ``planned``; or ``committed``, when it had been
    loaded before or has nothing to read.

    Args:
        settings: The pipeline.
        request: Who asks.
        ports: The world.
        settings_hash: Hash of ``settings.batch``.

    Raises:
        Busy: Another live request holds the pipeline.
        LedgerMoved: The ledger moved again and again while planning.
        StopAndCall: A fault of configuration, topics or positions; every one is listed.
        RetryLater: Kafka or PostgreSQL cannot be reached.
    """
    with rare_collections():
        for _ in range(_PLAN_ATTEMPTS - 1):
            try:
                return _plan_once(settings, request, ports, settings_hash)
            except LedgerMoved:
                continue
        return _plan_once(settings, request, ports, settings_hash)


def preview_plan(settings: PipelineSettings, request: Request, ports: PlanPorts) -> PlanPreview:
    """Gives what a plan would choose now, with its faults as values; writes nothing."""
    view = ports.ledger.plan_view(settings.pipeline, request, settings.batch.target)
    snapshot, choice = _choose(settings, view, run_options_of(request), ports)
    return PlanPreview(choice, snapshot, view)


def _plan_once(settings: PipelineSettings, request: Request, ports: PlanPorts, settings_hash: str) -> Batch:
    view = ports.ledger.plan_view(settings.pipeline, request, settings.batch.target)
    request = numbered_request(view, request)
    if standing := standing_batch(view, request, settings_hash):
        return standing
    supersedes = superseded_batch(view, request, ports.runs.is_finished)
    require_bound_settings(view, settings)
    ports.target.prepare(settings.batch)
    options = run_options_of(request)
    snapshot, choice = _choose(settings, view, options, ports)
    if choice.faults:
        raise fault_error(choice.faults, settings.pipeline)
    for warning in choice.warnings:
        _log.warning("%s", warning)
    for where, record in choice.ignored_bounds.items():
        _log.warning("%s: the record at offset %s is from the future and ends no run", where, record.offset)
    plan = NewPlan(
        pipeline=settings.pipeline,
        request=request,
        kind=options.kind,
        settings=settings.batch,
        settings_hash=settings_hash,
        first_run=settings.plan.first_run,
        hold=settings.plan.hold,
        cluster_id=snapshot.cluster_id,
        ranges=choice.ranges,
        new_topics=choice.new_topics,
        new_positions=choice.new_positions,
        valid_through=choice.valid_through,
        planned_at=snapshot.taken_at,
        supersedes=supersedes,
        left_out=tuple(str(fault) for fault in choice.left_out),
        warnings=choice.warnings,
        adopted=choice.adopted,
        skips=choice.skips,
        observations=choice.observations,
    )
    return ports.ledger.record_plan(plan, view)


def _choose(
    settings: PipelineSettings, view: PlanView, options: RunOptions, ports: PlanPorts
) -> tuple[LogSnapshot, PlanChoice]:
    snapshot = ports.log.snapshot(settings.plan.topics, settings.batch.isolation_level)
    times = _log_times(settings, view, snapshot, options, ports)
    choice = choose_ranges(settings, view, snapshot, options=options, times=times)
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
