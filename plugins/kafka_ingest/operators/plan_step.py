"""The plan step as both plan_batch and load_batch run it: with a table of what was planned in the task log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowSkipException

from kafka_ingest.core.batch import Batch, BatchState
from kafka_ingest.core.log_state import LogIdentity, LogSnapshot, TimedOffset
from kafka_ingest.core.offsets import OffsetRange, TopicPartition
from kafka_ingest.core.partition_faults import fault_error
from kafka_ingest.core.ports import Log
from kafka_ingest.core.run_options import RunMode, run_options_of
from kafka_ingest.core.settings import IsolationLevel, PipelineSettings, TopicSelection
from kafka_ingest.operators import wiring
from kafka_ingest.operators.failure_policy import TaskLog
from kafka_ingest.operators.patience import patience
from kafka_ingest.operators.request import planning_request_of
from kafka_ingest.steps.plan_batch import PlanPreview, plan_batch, preview_plan
from kafka_ingest.steps.plan_remarks import plan_remarks

if TYPE_CHECKING:
    from airflow.sdk import Context

_HEADERS = ("topic", "partition", "start", "end", "offsets", "committed before", "above log start")


@dataclass
class SeenLog:
    """A ``Log`` that keeps the log start offsets of its last snapshot, for the table."""

    log: Log
    log_start_offsets: dict[TopicPartition, int] = field(default_factory=dict)

    def snapshot(self, topics: TopicSelection, isolation_level: IsolationLevel) -> LogSnapshot:
        """Asks the log and remembers where each partition starts."""
        snapshot = self.log.snapshot(topics, isolation_level)
        self.log_start_offsets = {
            TopicPartition(topic, number): partition.log_start_offset
            for topic, state in snapshot.topics.items()
            for number, partition in state.partitions.items()
            if partition.log_start_offset is not None
        }
        return snapshot

    def offsets_at(self, time_ms: int, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, TimedOffset]:
        """Asks the log."""
        return self.log.offsets_at(time_ms, partitions)

    def identity(self, topics: Iterable[str]) -> LogIdentity:
        """Asks the log."""
        return self.log.identity(topics)


def run_plan_step(pipeline: PipelineSettings, context: Context, log: TaskLog, *, has_form: bool) -> Batch:
    """Gives the batch of this task's request, planned anew where need be, and logs its ranges.

    Args:
        pipeline: The pipeline.
        context: Airflow's.
        log: The task's.
        has_form: Whether the run's conf is the form of ``core.run_form``.

    Raises:
        AirflowSkipException: The run was asked to show its plan only; the log shows it.
        IngestError: As ``plan_batch`` raises it; ``BusyTooLong`` after ``airflow.busy_timeout_seconds``.
    """
    request = planning_request_of(context, pipeline, has_form=has_form)
    ports = wiring.plan_ports(pipeline, context)
    seen = SeenLog(ports.log)
    ports = replace(ports, log=seen)
    if run_options_of(request).mode is RunMode.PLAN_ONLY:
        _show_plan(preview_plan(pipeline, request, ports), pipeline, seen.log_start_offsets, log)
        raise AirflowSkipException("The run was asked to show its plan only: nothing was planned or loaded")
    with patience(context, pipeline.schedule.busy_timeout_seconds):
        batch = plan_batch(pipeline, request, ports, settings_hash=wiring.settings_hash_of(pipeline))
    log.info("%s", describe_plan(batch, seen.log_start_offsets))
    return batch


def _show_plan(
    preview: PlanPreview,
    pipeline: PipelineSettings,
    log_start_offsets: Mapping[TopicPartition, int],
    log: TaskLog,
) -> None:
    log.info("%s", describe_preview(preview, log_start_offsets))
    if preview.choice.faults:
        raise fault_error(preview.choice.faults, pipeline.pipeline)


def describe_preview(preview: PlanPreview, log_start_offsets: Mapping[TopicPartition, int]) -> str:
    """Says in a few lines, with a table of the ranges, what a run would read now, and what would stop it."""
    ranges = preview.choice.ranges
    rows = _table([_HEADERS, *(_row(r, log_start_offsets) for r in ranges)]) if ranges else []
    head = f"A run would read {sum(r.span_offsets for r in ranges)} offsets in {len(ranges)} partitions"
    return "\n".join([head, *rows, *(f"  {remark}" for remark in plan_remarks(preview))])


def describe_plan(batch: Batch, log_start_offsets: Mapping[TopicPartition, int]) -> str:
    """Says in a few lines, with a table of the ranges, what the batch holds.

    Args:
        batch: The batch.
        log_start_offsets: First offset that the log still holds, where Kafka was asked just now.
    """
    name = f"Batch {batch.batch_id} of pipeline {batch.pipeline}"
    left_out = [f"  left out: {fault}" for fault in batch.left_out]
    if not batch.ranges:
        return "\n".join([f"{name}: there is nothing to read, Spark is not started", *left_out])
    state = "was loaded before" if batch.state is BatchState.COMMITTED else "is planned"
    rows = [_row(r, log_start_offsets) for r in batch.ranges]
    again = f" ({batch.replaced_offsets} of them again)" if batch.replaced_offsets else ""
    offsets = f"{batch.span_offsets} offsets{again} in {len(rows)} partitions"
    summary = f"{name} {state}: {offsets} into {batch.settings.target}"
    return "\n".join([summary, *_table([_HEADERS, *rows]), *left_out])


def _row(r: OffsetRange, log_start_offsets: Mapping[TopicPartition, int]) -> tuple[str, ...]:
    log_start = log_start_offsets.get(r.topic_partition)
    headroom = "-" if log_start is None else str(r.start - log_start)
    numbers = (r.partition, r.start, r.end, r.span_offsets, r.committed_before)
    return (r.topic, *(str(number) for number in numbers), headroom)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADERS))]
    return [
        "  " + "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
