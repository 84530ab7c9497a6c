"""The plan step as both plan_batch and load_batch run it: with a table of what was planned in the task log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import indent
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowSkipException

from kafka_ingest.core.batch import Batch, BatchState
from kafka_ingest.core.log_state import LogIdentity, LogSnapshot, TimedOffset
from kafka_ingest.core.offsets import OffsetRange, TopicPartition
from kafka_ingest.core.partition_faults import fault_error
from kafka_ingest.core.ports import Log
from kafka_ingest.core.run_options import RunMode, run_options_of
from kafka_ingest.core.settings import IsolationLevel, PipelineSettings, TopicSelection
from kafka_ingest.core.text_table import Row, table
from kafka_ingest.operators import wiring
from kafka_ingest.operators.failure_policy import TaskLog
from kafka_ingest.operators.patience import patience
from kafka_ingest.operators.request import planning_request_of
from kafka_ingest.steps.plan_batch import PlanPreview, plan_batch, preview_plan
from kafka_ingest.steps.plan_remarks import plan_remarks

if TYPE_CHECKING:
    from airflow.sdk import Context

_COLUMNS = ("topic", "partition", "start", "end", "offsets", "committed_before", "above_log_start")
#: A screen of lines. The XCom value has every range.
_MOST_ROWS = 40


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
    """Say in a few lines, with a table of the ranges, what a run would read now, and what would stop it."""
    ranges = preview.choice.ranges
    head = f"A run would read {sum(r.span_offsets for r in ranges):,} offsets in {len(ranges):,} partitions"
    return "\n".join([head, *_table(ranges, log_start_offsets), *(f"  {remark}" for remark in plan_remarks(preview))])


def describe_plan(batch: Batch, log_start_offsets: Mapping[TopicPartition, int]) -> str:
    """Say in a few lines what the batch holds, with a table of the ranges where it was planned just now.

    Args:
        batch: The batch.
        log_start_offsets: First offset that the log still holds; empty where Kafka was not asked, because the batch was
            planned before: the log of the task that planned it has the table.
    """
    name = f"Batch {batch.batch_id}"
    left_out = [f"  left out: {fault}" for fault in batch.left_out]
    if not batch.ranges:
        return "\n".join([f"{name}: there is nothing to read, Spark is not started", *left_out])
    again = f" ({batch.replaced_offsets:,} of them again)" if batch.replaced_offsets else ""
    offsets = f"{batch.span_offsets:,} offsets{again} in {len(batch.ranges):,} partitions"
    summary = f"{name} {_state(batch, log_start_offsets)}: {offsets}"
    place = f"  of pipeline {batch.pipeline} into {batch.settings.target}"
    return "\n".join(
        [summary, place, *(_table(batch.ranges, log_start_offsets) if log_start_offsets else ()), *left_out]
    )


def _state(batch: Batch, log_start_offsets: Mapping[TopicPartition, int]) -> str:
    if batch.state is BatchState.COMMITTED:
        return "was loaded before"
    return "is planned" if log_start_offsets else "was planned before"


def _table(ranges: Sequence[OffsetRange], log_start_offsets: Mapping[TopicPartition, int]) -> Iterator[str]:
    if not ranges:
        return
    rows = [_row(r, log_start_offsets) for r in ranges[:_MOST_ROWS]]
    yield indent(table(rows, _COLUMNS), "  ")
    if rest := ranges[_MOST_ROWS:]:
        yield f"  and {len(rest):,} more partitions with {sum(r.span_offsets for r in rest):,} offsets"


def _row(r: OffsetRange, log_start_offsets: Mapping[TopicPartition, int]) -> Row:
    log_start = log_start_offsets.get(r.topic_partition)
    return {
        "topic": r.topic,
        "partition": r.partition,
        "start": r.start,
        "end": r.end,
        "offsets": r.span_offsets,
        "committed_before": r.committed_before,
        "above_log_start": None if log_start is None else r.start - log_start,
    }
