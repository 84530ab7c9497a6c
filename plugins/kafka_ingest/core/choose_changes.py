"""Choosing what a position change does: a pure function of ledger, log, settings and request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafka_ingest.core.change_requests import (
    Change,
    ChangeIdentityColumns,
    ChangeIsolationLevel,
    ChangeRequest,
    ChangeTarget,
    LogChange,
    PipelineChange,
    ResetToTime,
)
from kafka_ingest.core.change_scope import change_scope
from kafka_ingest.core.change_view import ChangeView
from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.log_changes import choose_log
from kafka_ingest.core.log_state import LogSnapshot, TimedOffset
from kafka_ingest.core.offset_changes import choose_offsets
from kafka_ingest.core.offsets import TopicPartition
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.pipeline_changes import choose_binding
from kafka_ingest.core.position_changes import ChangePlan
from kafka_ingest.core.requests import require_bound_settings
from kafka_ingest.core.settings import PipelineSettings


def needs_log(change: Change) -> bool:
    """Whether Kafka must be asked; the others can be made while it is away."""
    return not isinstance(change, PipelineChange)


def needs_table(change: Change) -> bool:
    """Whether the target table must be looked at."""
    return isinstance(change, ChangeTarget | ChangeIdentityColumns)


def partitions_to_time(
    settings: PipelineSettings, request: ChangeRequest, view: ChangeView, snapshot: LogSnapshot
) -> list[TopicPartition]:
    """Gives the partitions whose offsets for a time must be asked for: those of a reset to a time."""
    if not isinstance(request.change, ResetToTime):
        return []
    scope = change_scope(view.ledger, snapshot, request.change.only, identity=settings.batch.topic_identity)
    return [position.topic_partition for position, _ in scope.known]


def choose_changes(
    settings: PipelineSettings,
    request: ChangeRequest,
    *,
    view: ChangeView,
    snapshot: LogSnapshot | None,
    offsets_at: Mapping[TopicPartition, TimedOffset],
) -> ChangePlan:
    """Chooses what a change does, with every fault that prevents it.

    Args:
        settings: The pipeline as its file says.
        request: Who asks for what.
        view: The ledger.
        snapshot: The log, asked after the ledger; ``None`` where :func:`needs_log` says that it is not needed.
        offsets_at: For :func:`partitions_to_time`: the first offset at or after the time.

    Raises:
        ConfigError: The pipeline file differs from what binds the pipeline, and this change is not about that.
    """
    change, record = request.change, view.ledger.pipeline
    if record is None:
        return ChangePlan(faults=(_never_planned(request),))
    if not isinstance(change, ChangeTarget | ChangeIdentityColumns | ChangeIsolationLevel):
        require_bound_settings(view.ledger, settings)
    if isinstance(change, PipelineChange):
        return choose_binding(change, settings, view, record)
    assert snapshot is not None  # noqa: S101 - needs_log
    if isinstance(change, LogChange):
        plan = choose_log(change, settings, view.ledger, snapshot, record)
    else:
        identity = settings.batch.topic_identity
        plan = choose_offsets(change, view.ledger, snapshot, offsets_at, identity=identity)
    return replace(plan, moves=tuple(sorted(plan.moves, key=lambda move: move.place)))


def _never_planned(request: ChangeRequest) -> PartitionFault:
    return PartitionFault(
        ConfigError,
        f"pipeline {request.known_name}",
        expected="a pipeline that has planned before, and so has positions",
        found="none of that name in the ledger",
        next_command="correct the name; where a new pipeline begins is said by first_run in its file",
    )
