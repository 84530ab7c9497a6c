"""Where a partition without a position begins."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.log_state import PartitionState, TimedOffset
from kafka_ingest.core.offsets import TopicPartition
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.settings import FirstRunKind, PipelineSettings


def first_offset(
    tp: TopicPartition,
    state: PartitionState,
    settings: PipelineSettings,
    *,
    is_first: bool,
    offsets_at: Mapping[TopicPartition, TimedOffset],
) -> int | PartitionFault:
    """Gives the first position of a partition, or the fault that prevents one.

    ``first_run`` holds for the partitions of the first plan. One that joins later starts at its log start, so that
    nothing written between its creation and the plan is lost.
    """
    log_start, end = state.log_start_offset or 0, state.end_offset or 0
    kind = settings.plan.first_run.kind
    if not is_first or kind is FirstRunKind.EARLIEST:
        return log_start
    if kind is FirstRunKind.LATEST:
        return end
    if kind is FirstRunKind.TIMESTAMP:
        return max(log_start, offsets_at[tp].offset if tp in offsets_at else end)
    return _listed_offset(tp, state, settings)


def _listed_offset(tp: TopicPartition, state: PartitionState, settings: PipelineSettings) -> int | PartitionFault:
    listed = settings.plan.first_run.offsets
    low, high = state.log_start_offset or 0, state.high_watermark or 0
    offset = next((o.offset for o in reversed(listed) if o.partition == tp.partition and o.topic == tp.topic), None)
    if offset is not None and low <= offset <= high:
        return offset
    return PartitionFault(
        ConfigError,
        f"first_run.offsets for {tp}",
        expected=f"an offset from {low} (log start) to {high} (high watermark)",
        found="none listed" if offset is None else str(offset),
        next_command="list an offset for every partition in first_run.offsets of the pipeline file",
    )
