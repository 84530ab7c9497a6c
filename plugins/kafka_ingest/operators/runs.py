"""What the operators do when a task runs. Parsing a DAG file never loads this module: it brings the clients along."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from textwrap import indent
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow.configuration import conf
from airflow.providers.common.compat.sdk import AirflowSkipException, Stats

from kafka_ingest import metrics
from kafka_ingest.errors import BatchNotCommitted, IngestError, PartitionsFaulty, StopAndCall, fault_error, naming
from kafka_ingest.operators.context import (
    TaskLog,
    airflow_outcome,
    busy_timeout,
    next_run_due,
    planning_request_of,
    request_of,
)
from kafka_ingest.operators.lookup import AirflowRunStates, airflow_connection
from kafka_ingest.operators.task_links import TaskLinks, page_path
from kafka_ingest.postgres.rows import settings_hash
from kafka_ingest.protocol import housekeeping
from kafka_ingest.protocol.attempts import Attempt, AttemptOutcome, Step, record, recorded
from kafka_ingest.protocol.audit import AuditReport, audit_batch, mirror_group, record_announcement
from kafka_ingest.protocol.batch import Batch, BatchState, LoadPhases, RecordCounts, Request, RunMode, run_options_of
from kafka_ingest.protocol.housekeeping import ChoreReport, Outcome
from kafka_ingest.protocol.ledger_view import PlanView
from kafka_ingest.protocol.load import hold_given_back
from kafka_ingest.protocol.log import LogSnapshot
from kafka_ingest.protocol.plan import (
    PlanPreview,
    follow_up_form,
    follow_up_run_id,
    plan_batch,
    preview_plan,
    why_nothing_follows,
)
from kafka_ingest.protocol.ports import Ledger
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.protocol.staging import DeadLetterGroup
from kafka_ingest.report import (
    Row,
    batch_summary,
    committed_text,
    dead_letters_text,
    load_summary,
    plan_remarks,
    table,
    upsert_counts,
)
from kafka_ingest.settings import JobSettings, PipelineSettings
from kafka_ingest.spark.submission import JobSubmission
from kafka_ingest.world import World

if TYPE_CHECKING:
    from airflow.sdk import Context

# ----------
# The plan step, as plan_batch and load_batch run it, with a table of what was planned in the task log.

_COLUMNS = ("topic", "partition", "start", "end", "offsets", "committed_before", "above_log_start")


def _world(pipeline: PipelineSettings) -> World:
    return World(pipeline, airflow_connection)


def _planning_world(pipeline: PipelineSettings, context: Context) -> World:
    return World(pipeline, airflow_connection, AirflowRunStates(context["ti"]))


#: A screen of lines. The XCom value has every range.
_MOST_ROWS = 40


def plan(
    pipeline: PipelineSettings, context: Context, log: TaskLog, *, has_form: bool, links: TaskLinks
) -> dict[str, Any]:
    """Run task *plan_batch*; return ``report.batch_summary`` of its batch."""
    world = _planning_world(pipeline, context)
    recorded_plan = _recorded(world, Step.PLAN, context)
    with airflow_outcome(log), recorded_plan as attempt, timed_step(pipeline.pipeline, "plan"):
        batch = run_plan_step(world, context, log, has_form=has_form)
        attempt.batch_id = batch.batch_id
        links.show_batch(batch)
        if metrics_are_on() and (view := read_for_metrics(world, batch.request)):
            send(metrics.plan_measurements(pipeline, batch, view))
        return batch_summary(batch)


def run_plan_step(world: World, context: Context, log: TaskLog, *, has_form: bool) -> Batch:
    """Return the batch of this task's request, planned anew where need be, and log its ranges.

    Args:
        world: The pipeline's.
        context: Airflow's.
        log: The task's.
        has_form: Whether the run's conf is the form of ``forms.run``.

    Raises:
        AirflowSkipException: The run was asked to show its plan only; the log shows it.
        IngestError: As ``plan_batch`` raises it; ``BusyTooLong`` after ``airflow.busy_timeout_seconds``.
    """
    pipeline = world.pipeline
    request = planning_request_of(context, pipeline, has_form=has_form)
    world.spark_master()  # a fault of its connection is told before anything is planned
    ports = world.plan_ports()
    seen: list[LogSnapshot] = []
    if run_options_of(request).mode is RunMode.PLAN_ONLY:
        _show_plan(preview_plan(pipeline, request, ports), pipeline, log)
        raise AirflowSkipException("The run was asked to show its plan only: nothing was planned or loaded")
    with busy_timeout(context, pipeline.schedule.busy_timeout_seconds):
        hash_ = settings_hash(pipeline.batch)
        batch = plan_batch(pipeline, request, ports, settings_hash=hash_, on_snapshot=seen.append)
    log.info("%s", describe_plan(batch, _log_starts(seen[-1]) if seen else {}))
    return batch


def _log_starts(snapshot: LogSnapshot) -> Mapping[TopicPartition, int]:
    return {
        TopicPartition(topic, number): partition.log_start_offset
        for topic, state in snapshot.topics.items()
        for number, partition in state.partitions.items()
        if partition.log_start_offset is not None
    }


def _show_plan(preview: PlanPreview, pipeline: PipelineSettings, log: TaskLog) -> None:
    log.info("%s", describe_preview(preview))
    if preview.choice.faults:
        raise fault_error(preview.choice.faults, pipeline.pipeline)


def describe_preview(preview: PlanPreview) -> str:
    """Say in a few lines, with a table of the ranges, what a run would read now, and what would stop it."""
    ranges, log_starts = preview.choice.ranges, _log_starts(preview.snapshot)
    head = f"A run would read {sum(r.span_offsets for r in ranges):,} offsets in {len(ranges):,} partitions"
    return "\n".join([head, *_table(ranges, log_starts), *(f"  {remark}" for remark in plan_remarks(preview))])


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


def own_batch(world: World, request: Request) -> Batch | None:
    """Return the batch of a run; ``None`` where it planned none."""
    name = world.pipeline.pipeline
    with naming(name):
        return world.ledger().batch_of(name, request)


# ----------
# Metrics go through Airflow's own stats: StatsD, Datadog or OpenTelemetry, whichever the deployment has chosen.

_log = logging.getLogger(__name__)

#: What switches a backend on (``airflow/sdk/observability/metrics/stats_utils.py``, 3.3.2).
_BACKENDS = ("statsd_on", "statsd_datadog_enabled", "otel_on")
#: Names of methods: in Airflow 3.1 the first look at one connects to the backend, and DAG files import this module.
_SENDERS: Mapping[metrics.MetricKind, str] = {
    metrics.MetricKind.COUNTER: "incr",
    metrics.MetricKind.GAUGE: "gauge",
    metrics.MetricKind.TIMER: "timing",
}


def metrics_are_on() -> bool:
    """Whether Airflow's configuration names a backend of metrics: without one, nothing need be read for them."""
    return any(conf.getboolean("metrics", backend, fallback=False) for backend in _BACKENDS)


def read_for_metrics(world: World, request: Request) -> PlanView | None:
    """Read the ledger for metrics, after the task's work is done.

    Returns:
        ``None``, with a warning, when it could not be read: that fails no task.
    """
    try:
        pipeline = world.pipeline
        return world.ledger().plan_view(pipeline.pipeline, request, pipeline.batch.target)
    except IngestError as error:
        _log.warning("Lag and headroom are not sent: %s", error)
        return None


def send(measurements: Iterable[metrics.Measurement]) -> None:
    """Send each value under its name, with its tags; nothing where Airflow's configuration has no ``[metrics]``."""
    for measurement in measurements:
        tags = {"pipeline": measurement.pipeline, **dict(measurement.tags)}
        sender = getattr(Stats, _SENDERS[measurement.metric.kind])
        options = {"delta": True} if measurement.is_change else {}
        sender(measurement.metric.name, measurement.value, tags=tags, **options)


@contextmanager
def timed_step(pipeline: str, step: str) -> Iterator[None]:
    """Name the pipeline in a step's faults; send how long it took, when it ends without an error."""
    began = time.monotonic()
    with naming(pipeline):
        yield
    milliseconds = (time.monotonic() - began) * 1_000
    send([metrics.Measurement(metrics.STEP_DURATION, milliseconds, pipeline, (("step", step),))])


# ----------
# What becomes of each try of a task, recorded for people.


@contextmanager
def _recorded(world: World, step: Step, context: Context) -> Iterator[Attempt]:
    """Record how the block ends, as the try of this task; count it where it fails."""
    ti, pipeline = context["ti"], world.pipeline
    attempt = Attempt(pipeline.pipeline, step, request_of(context), ti.task_id, ti.try_number)
    try:
        with recorded(attempt, world.attempts, _log.warning, skips=AirflowSkipException):
            yield attempt
    except BaseException as error:
        if attempt.outcome is AttemptOutcome.FAILED:
            # As Airflow's server decides (`_is_eligible_to_retry` in `execution_api/routes/task_instances.py`, 3.3.2).
            is_last_try = isinstance(error, StopAndCall) or ti.try_number > ti.max_tries
            fault = type(error).__name__
            send(metrics.failure_measurements(pipeline.pipeline, step, fault, is_last_try=is_last_try))
        raise


# ----------
# Task *load_batch*.

#: Is told of a Spark application that has started: its id, and the address of its own page (empty: it has none).
OnApplication: TypeAlias = Callable[[str, str], None]
#: Runs spark-submit to its end; returns the tail of its output when it failed, else an empty text.
Submit: TypeAlias = Callable[[JobSubmission, OnApplication], str]


def load(
    pipeline: PipelineSettings, context: Context, log: TaskLog, *, has_form: bool, submit: Submit, links: TaskLinks
) -> dict[str, Any]:
    """Run task *load_batch*; return ``report.load_summary`` of the committed batch."""
    world = _planning_world(pipeline, context)
    with airflow_outcome(log), _recorded(world, Step.LOAD, context) as attempt:
        phases: LoadPhases | None = None
        batch = run_plan_step(world, context, log, has_form=has_form)
        attempt.batch_id = batch.batch_id
        links.show_batch(batch)
        if batch.state is not BatchState.COMMITTED:
            given_back = hold_given_back(batch, world.ledger())
            may_wait = busy_timeout(context, pipeline.schedule.busy_timeout_seconds)
            log.info("%s", _way(pipeline.job, batch))
            with timed_step(pipeline.pipeline, "load"), may_wait, given_back:
                record(attempt, world.attempts, _log.warning)  # that it runs
                shown, in_process = _shown(attempt, world, links), pipeline.job.is_in_process(batch.span_offsets)
                batch, phases = world.load(
                    batch, lambda submission: submit(submission, shown) or "exit code 0", in_process=in_process
                )
            attempt.phases = phases
            links.show_batch(batch)
        _tell_result(batch, world.ledger(), log)
        if phases:
            send(metrics.phase_measurements(phases, batch.pipeline))
        return load_summary(batch, phases)


def _way(job: JobSettings, batch: Batch) -> str:
    below, offsets = job.in_process_below_offsets, f"{batch.span_offsets:,} offsets"
    if below is None:
        return f"With Spark: {offsets}"
    if job.is_in_process(batch.span_offsets):
        return f"In this process, without Spark: {offsets}, fewer than spark.in_process_below_offsets ({below:,})"
    return f"With Spark: {offsets}, not fewer than spark.in_process_below_offsets ({below:,})"


def _shown(attempt: Attempt, world: World, links: TaskLinks) -> OnApplication:
    """Link to the application, and record it, as soon as it has started."""

    def show(application_id: str, ui_url: str) -> None:
        links.show_application(application_id, ui_url)
        attempt.spark_application_id, attempt.spark_ui_url = application_id, ui_url
        record(attempt, world.attempts, _log.warning)

    return show


def _tell_result(batch: Batch, ledger: Ledger, log: TaskLog) -> None:
    """Log what the batch has written; dead letters are a warning, for the run is green all the same."""
    if not batch.ranges:
        return
    log.info("%s", committed_text(batch))
    if batch.counts and batch.counts.dead_letters:
        log.warning("%s", dead_letters_text(batch, _dead_letter_groups(batch, ledger)))


def _dead_letter_groups(batch: Batch, ledger: Ledger) -> Sequence[DeadLetterGroup]:
    try:
        return ledger.dead_letter_groups(batch.batch_id)
    except IngestError:
        return ()  # The batch is committed: its task must not fail because nobody can say why records did not fit.


# ----------
# Task *audit_batch*.

_ANNOUNCED = (
    "batch_id",
    "pipeline",
    "kind",
    "committed_offsets",
    "record_time_min",
    "record_time_max",
    "valid_through",
)


def audit(
    pipeline: PipelineSettings,
    context: Context,
    log: TaskLog,
    *,
    announce: Callable[[AuditReport], None],
    links: TaskLinks,
) -> tuple[dict[str, Any], str]:
    """Run task *audit_batch*.

    Returns:
        ``report.batch_summary`` of the audited batch, and why no run follows it; empty where one does.
    """
    world = _world(pipeline)
    recorded_audit = _recorded(world, Step.AUDIT, context)
    with airflow_outcome(log), recorded_audit as attempt, timed_step(pipeline.pipeline, "audit"):
        own = own_batch(world, request_of(context))
        attempt.batch_id = own.batch_id if own else None
        if own is None:
            raise BatchNotCommitted(
                "this run has no batch to audit",
                expected="a batch planned by plan_batch or load_batch of the same run and task group",
                next_command="clear load_batch of this run (Airflow: task load_batch, Clear)",
                pipeline=pipeline.pipeline,
            )
        links.show_batch(own)
        report = audit_batch(own.batch_id, own.request, world.ledger())
        announce(report)
        everything = f"python -m kafka_ingest audit {pipeline.pipeline} --all"
        log.info("Rows of the newest batch were counted; those of all batches: %s", everything)
        _tell_others(world, report.batch)
        return batch_summary(report.batch), why_nothing_follows(report.batch, pipeline.plan.limit)


def _tell_others(world: World, batch: Batch) -> None:
    """Send metrics and copy the position to the consumer group; a failure is a warning here."""
    pipeline, has_metrics = world.pipeline, metrics_are_on()
    # A group in a DAG of somebody else runs when that DAG does, whatever the pipeline file says.
    due = None if batch.request.task_group else next_run_due(pipeline.schedule, batch.planned_at)
    send(metrics.success_measurements(batch, datetime.now(UTC), due))
    view = read_for_metrics(world, batch.request) if has_metrics or pipeline.watch.mirror_group else None
    if view and has_metrics:
        send(metrics.lag_measurements(pipeline, view))
    mirror_group(pipeline, lambda: view, world.mirror)


def record_announced(pipeline: PipelineSettings, report: AuditReport) -> None:
    """Store that the batches of an audit are announced, and count them."""
    with naming(pipeline.pipeline):
        record_announcement(report, _world(pipeline).ledger())
    send(metrics.batch_measurements(report.announced))


def has_succeeded(context: Context) -> bool:
    """Ask Airflow's server whether it holds this task as successful."""
    ti = context["ti"]
    states = ti.get_task_states(
        dag_id=ti.dag_id,
        task_ids=[ti.task_id],
        run_ids=[ti.run_id],
        map_index=None if ti.map_index is None or ti.map_index < 0 else ti.map_index,
    )
    return "success" in states.get(ti.run_id, {}).values()


def event_extra(report: AuditReport) -> dict[str, Any]:
    """Return the event's extra: the run's own batch, and under ``also_announced`` those of runs that never got there.

    A batch can be announced twice; consumers tell by ``batch_id``.
    """
    others = [batch for batch in report.announced if batch.batch_id != report.batch.batch_id]
    return {**_announcement(report.batch), "also_announced": [_announcement(batch) for batch in others]}


def _announcement(batch: Batch) -> dict[str, Any]:
    summary = batch_summary(batch)
    counts = batch.counts or RecordCounts()
    return {
        **{key: summary[key] for key in _ANNOUNCED},
        "rows": counts.rows,
        **upsert_counts(counts),
        "dead_letters": counts.dead_letters,
        "warnings": list(batch.warnings),
        "page": page_path("batches", batch.batch_id),
    }


# ----------
# Tasks *follow_up*, *report_left_out* and *keep_house*.


def follow_up(pipeline: PipelineSettings, context: Context, log: TaskLog) -> tuple[str, dict[str, Any]]:
    """Return run id and form of the run that follows this one.

    Raises:
        AirflowSkipException: Nothing follows.
    """
    with airflow_outcome(log):
        own = own_batch(_world(pipeline), request_of(context))
    form = follow_up_form(own, pipeline.plan.limit) if own else None
    if own is None or form is None:
        raise AirflowSkipException(f"No run follows: {why_nothing_follows(own, pipeline.plan.limit)}")
    return follow_up_run_id(own), form


def report_left_out(pipeline: PipelineSettings, context: Context, log: TaskLog) -> None:
    """Fail where the batch of this run left partitions out, and name each with its fault."""
    with airflow_outcome(log):
        own = own_batch(_world(pipeline), request_of(context))
        if own and own.left_out:
            raise PartitionsFaulty(
                "partitions were left out; the others are loaded and announced",
                expected="every partition of the topics read",
                found="\n".join(own.left_out),
                next_command=f"python -m kafka_ingest plan {pipeline.pipeline} --dry-run",
                pipeline=pipeline.pipeline,
                batch_id=own.batch_id,
            )
        log.info("No partition was left out")


def keep_house(connection: str, params: Mapping[str, Any], log: TaskLog) -> dict[str, int]:
    """Tidy the database of a connection; return how many chores were done, would be done, and were left."""
    # Only here: no other task tidies, and the full world brings all clients along.
    from kafka_ingest.full_world import housekeeper

    with airflow_outcome(log):
        reports = housekeeping.keep_house(
            housekeeper(connection, airflow_connection),
            older_than_days=params["older_than_days"],
            is_dry_run=params["dry_run"],
        )
    for report in reports:
        tell = log.warning if report.outcome is Outcome.LEFT else log.info
        tell("%s", _line(report))
    return {outcome.value: sum(r.outcome is outcome for r in reports) for outcome in Outcome}


def _line(report: ChoreReport) -> str:
    count = "" if report.count is None else f" ({report.count:,})"
    reason = f": {report.reason}" if report.reason else ""
    return f"{report.chore}, {report.thing}: {report.outcome}{count}{reason}"
