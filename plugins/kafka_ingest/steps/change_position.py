"""Step *change positions*: show what a position change would do, or record it in one transaction.

Order, as in planning: read the ledger in one short transaction; ask Kafka outside any transaction; choose; record in
one short transaction that first checks that the ledger still stands as it was read.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_ingest.core.batch import Batch
from kafka_ingest.core.change_requests import ChangeRequest, ResetToTime
from kafka_ingest.core.change_view import ChangeView, NewChange, recorded_before
from kafka_ingest.core.choose_changes import choose_changes, needs_log, partitions_to_time
from kafka_ingest.core.errors import ConfigError, LedgerMoved
from kafka_ingest.core.outstanding import batch_to_supersede
from kafka_ingest.core.partition_faults import fault_error
from kafka_ingest.core.ports import Log, PositionLedger
from kafka_ingest.core.position_changes import ChangePlan, RecordedChange
from kafka_ingest.core.settings import PipelineSettings

#: How often a change starts over when the ledger moves under it; chosen as for plans (``steps/plan_batch.py``).
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ChangePorts:
    """What a position change needs from the world."""

    ledger: PositionLedger
    log: Log


@dataclass(frozen=True, slots=True)
class ChangePreview:
    """What a change would do now: nothing was written.

    Attributes:
        plan: Moves and settings, with the faults that prevent them as values.
        outstanding: A planned batch, which refuses the change unless it is told to supersede it.
        recorded: What the same request has recorded before; then it would do nothing.
    """

    plan: ChangePlan
    outstanding: Batch | None
    recorded: RecordedChange | None


def preview_change(settings: PipelineSettings, request: ChangeRequest, ports: ChangePorts) -> ChangePreview:
    """Gives what a change would do now; writes nothing.

    Raises:
        ConfigError: The pipeline file differs from what binds the pipeline.
        RequestChanged: The request id was recorded with other arguments.
        RetryLater: Kafka or PostgreSQL cannot be reached.
    """
    view = ports.ledger.change_view(request, settings.batch.target)
    if recorded := recorded_before(view, request):
        return ChangePreview(ChangePlan(), view.ledger.outstanding, recorded)
    return ChangePreview(_choose(settings, request, view, ports), view.ledger.outstanding, None)


def apply_change(settings: PipelineSettings, request: ChangeRequest, ports: ChangePorts) -> RecordedChange:
    """Makes a change, or gives back what the same request recorded before.

    Durable on return: positions, what binds the pipeline, and the rows of ``position_change``, all in one transaction.

    Args:
        settings: The pipeline as its file says.
        request: Who asks for what, and why.
        ports: The world.

    Raises:
        BatchOutstanding: A batch is planned, and the request does not say that it may be superseded.
        ConfigError: There is no reason, or the pipeline file differs from what binds the pipeline.
        LedgerMoved: The ledger moved again and again.
        RequestChanged: The request id was recorded with other arguments.
        StopAndCall: What else prevents the change; every fault is listed.
        RetryLater: Kafka or PostgreSQL cannot be reached.
    """
    _require_reason(request)
    for _ in range(_ATTEMPTS - 1):
        try:
            return _apply_once(settings, request, ports)
        except LedgerMoved:
            continue
    return _apply_once(settings, request, ports)


def _apply_once(settings: PipelineSettings, request: ChangeRequest, ports: ChangePorts) -> RecordedChange:
    view = ports.ledger.change_view(request, settings.batch.target)
    if recorded := recorded_before(view, request):
        return recorded
    supersedes = batch_to_supersede(view.ledger, supersede=request.supersede)
    plan = _choose(settings, request, view, ports)
    if plan.faults:
        raise fault_error(plan.faults, request.pipeline)
    return ports.ledger.record_change(NewChange(request, plan, supersedes), view)


def _choose(settings: PipelineSettings, request: ChangeRequest, view: ChangeView, ports: ChangePorts) -> ChangePlan:
    record, change = view.ledger.pipeline, request.change
    if record is None or not needs_log(change):
        return choose_changes(settings, request, view=view, snapshot=None, offsets_at={})
    snapshot = ports.log.snapshot(settings.plan.topics, record.isolation_level)
    places = partitions_to_time(settings, request, view, snapshot)
    offsets_at = ports.log.offsets_at(change.time_ms, places) if isinstance(change, ResetToTime) and places else {}
    return choose_changes(settings, request, view=view, snapshot=snapshot, offsets_at=offsets_at)


def _require_reason(request: ChangeRequest) -> None:
    if not request.why.strip():
        raise ConfigError(
            "a position change needs a reason: it is kept in the ledger for whoever asks later",
            expected="a reason",
            found="none",
            next_command='ask again with one: --reason "why the positions change"',
            pipeline=request.pipeline,
        )
