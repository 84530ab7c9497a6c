"""What a plan watches beside its ranges: headroom that grows short, and open transactions that hang."""

from __future__ import annotations

from dataclasses import replace

from kafka_ingest.core.batch import BatchKind
from kafka_ingest.core.errors import PartitionStalled
from kafka_ingest.core.headroom import headrooms, short_headrooms
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.log_observations import observe
from kafka_ingest.core.log_state import LogSnapshot
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.planning import PlanChoice
from kafka_ingest.core.retired_topics import without_retired
from kafka_ingest.core.settings import PartitionFaultPolicy, PipelineSettings
from kafka_ingest.core.stalled_partitions import StalledPartition, since_observation


def watched(
    choice: PlanChoice, settings: PipelineSettings, view: PlanView, snapshot: LogSnapshot, *, kind: BatchKind
) -> PlanChoice:
    """Compares what the plan saw with what earlier plans saw; the ranges stay as they are.

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
