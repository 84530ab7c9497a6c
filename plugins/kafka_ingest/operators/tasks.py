"""The tasks of a pipeline's DAG."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowSkipException, DagRunTriggerException, Stats
from airflow.sdk import Asset, BaseOperator

from kafka_ingest.errors import BatchNotCommitted, ConfigError, IngestError, PartitionsFaulty
from kafka_ingest.metrics import (
    STEP_DURATION,
    Measurement,
    MetricKind,
    batch_measurements,
    headroom_measurements,
    lag_measurements,
    phase_measurements,
    valid_through_measurements,
)
from kafka_ingest.operators import wiring
from kafka_ingest.operators.context import TaskLog, airflow_outcome, patience, planning_request_of, request_of
from kafka_ingest.protocol.audit import AuditReport, audit_batch, mirror_group, record_announcement
from kafka_ingest.protocol.batch import Batch, BatchState, LoadPhases, Request, RunMode, run_options_of
from kafka_ingest.protocol.housekeeping import ChoreReport, Outcome, keep_house
from kafka_ingest.protocol.ledger_view import PlanView
from kafka_ingest.protocol.load import hold_given_back
from kafka_ingest.protocol.log import LogIdentity, LogSnapshot, TimedOffset
from kafka_ingest.protocol.plan import (
    PlanPreview,
    follow_up_form,
    follow_up_run_id,
    plan_batch,
    preview_plan,
    why_nothing_follows,
)
from kafka_ingest.protocol.ports import Ledger, Log
from kafka_ingest.protocol.position import OffsetRange, TopicPartition, fault_error
from kafka_ingest.protocol.staging import DeadLetterGroup
from kafka_ingest.report import (
    Row,
    announced_text,
    batch_summary,
    committed_text,
    dead_letters_text,
    load_summary,
    plan_remarks,
    table,
)
from kafka_ingest.settings import BatchSettings, IsolationLevel, PipelineSettings, TopicSelection
from kafka_ingest.spark.archive import job_folder

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from kafka_ingest.spark.submission import JobSubmission


# ----------
# The target table as an Airflow asset, and what its events tell.

_ANNOUNCED = (
    "batch_id",
    "pipeline",
    "kind",
    "committed_offsets",
    "record_time_min",
    "record_time_max",
    "valid_through",
)


def target_asset(settings: BatchSettings) -> Asset:
    """Return the asset of a pipeline's target table: known while DAGs are parsed, without any connection.

    Name ``<connection>.<schema>.<table>``, for ``schedule=Asset.ref(name="warehouse.shop.orders")`` in another DAG. The
    connection id is part of it because Airflow wants names to be unique, and two databases may have a table of one
    name. The URI has a scheme of its own: ``postgres://`` needs host and database (Airflow's AIP-60 rules), which only
    the connection knows; schemes that begin with ``x-`` are free.
    """
    target = settings.target
    path = "/".join(quote(part, safe="") for part in (settings.target_connection, target.schema, target.table))
    return Asset(
        name=f"{settings.target_connection}.{target.schema}.{target.table}",
        uri=f"x-kafka-ingest://{path}",
        group="kafka-ingest",
    )


def event_extra(report: AuditReport) -> dict[str, Any]:
    """Return the event's extra: the run's own batch, and under ``also_announced`` those of runs that never got there.

    A batch can be announced twice; consumers tell by ``batch_id``.
    """
    others = [batch for batch in report.announced if batch.batch_id != report.batch.batch_id]
    return {**_announcement(report.batch), "also_announced": [_announcement(batch) for batch in others]}


def _announcement(batch: Batch) -> dict[str, Any]:
    summary = batch_summary(batch)
    counts = batch.counts
    return {
        **{key: summary[key] for key in _ANNOUNCED},
        "rows": counts.rows if counts else 0,
        "dead_letters": counts.dead_letters if counts else 0,
        "warnings": list(batch.warnings),
    }


# ----------
# The plan step as both plan_batch and load_batch run it: with a table of what was planned in the task log.

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
    """Return the batch of this task's request, planned anew where need be, and log its ranges.

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


# ----------
# Task *follow_up*: starts the next run at once where the limit cut this one.


class FollowUpOperator(BaseOperator):
    """Triggers another run of this DAG when the batch of this run used up the limit; else it is skipped.

    The new run's id is made of the batch's id, and Airflow has one run of an id: trying or clearing this task again
    starts no second one. It waits in Airflow's queue until this run has ended (``max_active_runs=1``).

    Args:
        pipeline: The pipeline, as ``adapters.pipeline_files.load_pipeline`` gives it.
    """

    ui_color = "#e8e0f4"

    def __init__(self, *, pipeline: PipelineSettings, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> None:
        """Decides.

        Raises:
            DagRunTriggerException: To Airflow: trigger the run (as ``TriggerDagRunOperator`` does in Airflow 3).
            AirflowSkipException: Nothing follows.
        """
        settings, request = self.pipeline, request_of(context)
        with airflow_outcome(self.log):
            own = wiring.ledger(settings).batch_of(settings.pipeline, request)
        form = follow_up_form(own, settings.plan.limit) if own else None
        if own is None or form is None:
            raise AirflowSkipException(f"No run follows: {why_nothing_follows(own, settings.plan.limit)}")
        raise DagRunTriggerException(
            trigger_dag_id=request.dag_id,
            dag_run_id=follow_up_run_id(own),
            conf=form,
            logical_date=None,
            reset_dag_run=False,
            skip_when_already_exists=True,
            wait_for_completion=False,
            allowed_states=[],
            failed_states=[],
            poke_interval=0,
            deferrable=False,
        )


# ----------
# Task *report_left_out*: makes a run end red whose batch left partitions out.


class ReportLeftOutOperator(BaseOperator):
    """Fails when the batch of this run left partitions out (``on_partition_fault: leave_out``).

    A task of its own, because Airflow drops the asset events of a task that fails.

    Args:
        pipeline: The pipeline, as ``adapters.pipeline_files.load_pipeline`` gives it.
    """

    ui_color = "#f6d5d5"

    def __init__(self, *, pipeline: PipelineSettings, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> None:
        """Look at the batch.

        Raises:
            AirflowFailException: Partitions were left out; each is named with its fault.
        """
        with airflow_outcome(self.log):
            settings, request = self.pipeline, request_of(context)
            own = wiring.ledger(settings).batch_of(settings.pipeline, request)
            if own and own.left_out:
                raise PartitionsFaulty(
                    "partitions were left out; the others are loaded and announced",
                    expected="every partition of the topics read",
                    found="\n".join(own.left_out),
                    next_command=f"python -m kafka_ingest plan {settings.pipeline} --dry-run",
                    pipeline=settings.pipeline,
                    batch_id=own.batch_id,
                )
            self.log.info("No partition was left out")


# ----------
# Task *keep_house*: tidies one target database.


class HousekeepingOperator(BaseOperator):
    """Tidies the database of one connection. What is in use is left, named in the log, and done by a later run.

    The run's parameters ``older_than_days`` and ``dry_run`` say what to do.

    Returns:
        How many chores were done, would be done, and were left.

    Args:
        connection: Airflow connection of a target database.
    """

    ui_color = "#ece5d8"

    def __init__(self, *, connection: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.connection = connection

    def execute(self, context: Context) -> dict[str, int]:
        """Tidies.

        Raises:
            AirflowException: As ``operators/context.py`` says.
        """
        params = context["params"]
        with airflow_outcome(self.log):
            reports = keep_house(
                wiring.housekeeper(self.connection),
                older_than_days=params["older_than_days"],
                is_dry_run=params["dry_run"],
            )
        for report in reports:
            log = self.log.warning if report.outcome is Outcome.LEFT else self.log.info
            log("%s", _line(report))
        return {outcome.value: sum(r.outcome is outcome for r in reports) for outcome in Outcome}


def _line(report: ChoreReport) -> str:
    count = "" if report.count is None else f" ({report.count:,})"
    reason = f": {report.reason}" if report.reason else ""
    return f"{report.chore}, {report.thing}: {report.outcome}{count}{reason}"


# ----------
# Sends metrics through Airflow's own stats: StatsD, Datadog or OpenTelemetry, whichever the deployment has chosen.

_log = logging.getLogger(__name__)

_SENDERS: Mapping[MetricKind, Callable[..., None]] = {
    MetricKind.COUNTER: Stats.incr,
    MetricKind.GAUGE: Stats.gauge,
    MetricKind.TIMER: Stats.timing,
}


def read_for_metrics(pipeline: PipelineSettings, request: Request) -> PlanView | None:
    """Read the ledger for metrics, after the task's work is done.

    Returns:
        ``None``, with a warning, when it could not be read: that fails no task.
    """
    try:
        return wiring.ledger(pipeline).plan_view(pipeline.pipeline, request, pipeline.batch.target)
    except IngestError as error:
        _log.warning("Lag and headroom are not sent: %s", error)
        return None


def send(measurements: Iterable[Measurement]) -> None:
    """Send each value under its name, with its tags; nothing where Airflow's configuration has no ``[metrics]``."""
    for measurement in measurements:
        tags = {"pipeline": measurement.pipeline, **dict(measurement.tags)}
        _SENDERS[measurement.metric.kind](measurement.metric.name, measurement.value, tags=tags)


@contextmanager
def timed_step(pipeline: str, step: str) -> Iterator[None]:
    """Send how long a step took, when it ends without an error."""
    began = time.monotonic()
    yield
    milliseconds = (time.monotonic() - began) * 1_000
    send([Measurement(STEP_DURATION, milliseconds, pipeline, (("step", step),))])


# ----------
# Task *plan_batch*: freezes the offset ranges of this run in the ledger.


class PlanBatchOperator(BaseOperator):
    """Plans the batch of this run; run again, it gives the same batch.

    Returns:
        ``core.summary.batch_summary``: the batch's id, ranges and state, JSON-safe.

    Args:
        pipeline: The pipeline, as ``adapters.pipeline_files.load_pipeline`` gives it.
        has_form: Whether the run's conf is the form of ``core.run_form``; else it is not looked at.
    """

    ui_color = "#dbe9f6"

    def __init__(self, *, pipeline: PipelineSettings, has_form: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.has_form = has_form

    def execute(self, context: Context) -> dict[str, Any]:
        """Plans.

        Raises:
            AirflowException: As ``operators/context.py`` says.
        """
        with airflow_outcome(self.log), timed_step(self.pipeline.pipeline, "plan"):
            batch = run_plan_step(self.pipeline, context, self.log, has_form=self.has_form)
            if view := read_for_metrics(self.pipeline, batch.request):
                send(lag_measurements(self.pipeline, view))
                send(headroom_measurements(self.pipeline, view))
            return batch_summary(batch)


# ----------
# Task *load_batch*: submits the Spark job of the batch, then asks the ledger what came of it.

#: Lines of spark-submit's output that go into an error when the job left no outcome.
_LAST_LINES = 20
#: A line of the job (``spark_jobs/load_job.py``) or of log4j's console: an optional date, time, level and message.
_LEVELLED = re.compile(r"(?:\d\d/\d\d/\d\d )?\d\d:\d\d:\d\d (?P<level>[A-Z]+) (?P<message>.*)")
_WARNINGS = frozenset({"WARN", "WARNING"})
_ERRORS = frozenset({"ERROR", "FATAL", "CRITICAL"})
#: Spark 4.2 and Java 17 say this at every start, and nothing follows from it: no reader should learn to pass warnings.
_SAID_AT_EVERY_START = ("NativeCodeLoader: ", "Using incubator modules: ")


class SparkSubmitLog:
    """The logger of the provider's hook, which logs all that spark-submit prints as information.

    Lines get the level that they name, and lose their time: Airflow shows one. The command is folded away.

    Args:
        log: The hook's own logger.
    """

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def info(self, event: str, *args: Any) -> None:
        """Log a line of spark-submit, or a remark of the hook."""
        if args and "cmd" in event:
            self._fold(event.partition(":")[0], str(args[0]))
            return
        found = None if args else _LEVELLED.fullmatch(event)
        level, message = found.group("level", "message") if found else ("INFO", event)
        self._method(level, message)(message, *args)

    def _method(self, level: str, message: str) -> Any:
        if level in _ERRORS:
            return self._log.error
        is_warning = level in _WARNINGS and not message.startswith(_SAID_AT_EVERY_START)
        return self._log.warning if is_warning else self._log.info

    def _fold(self, title: str, command: str) -> None:
        self._log.info(f"::group::{title}")
        for part in command.replace(" --", "\n  --").splitlines():
            self._log.info("%s", part)
        self._log.info("::endgroup::")


class LoadBatchOperator(SparkSubmitOperator):
    """Loads the batch of this run with Spark, in client mode on ``local[...]`` or ``spark://``.

    It begins with the plan step, so a plan that was superseded in the meantime is no special case. Without anything to
    read, or when the batch is committed already, it starts no Spark and succeeds. Whether a job has succeeded is what
    the ledger says: neither its exit code nor its log.

    Application, arguments, configuration and environment are set while the task runs. They are no template fields, so
    that nothing of them can be rendered, and secrets go through the environment alone.

    Returns:
        ``core.summary.load_summary`` of the committed batch.

    Args:
        pipeline: The pipeline, as ``adapters.pipeline_files.load_pipeline`` gives it.
        has_form: Whether the run's conf is the form of ``core.run_form``; else it is not looked at.
    """

    template_fields: Sequence[str] = ()
    ui_color = "#fbe3d0"

    def __init__(self, *, pipeline: PipelineSettings, has_form: bool = False, **kwargs: Any) -> None:
        job = pipeline.job
        super().__init__(
            conn_id=job.spark_connection,
            driver_memory=job.driver_memory,
            executor_memory=job.executor_memory,
            executor_cores=job.executor_cores,
            **kwargs,
        )
        self.pipeline = pipeline
        self.has_form = has_form

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Load.

        Raises:
            AirflowException: As ``operators/context.py`` says.
        """
        with airflow_outcome(self.log):
            phases: LoadPhases | None = None
            batch = run_plan_step(self.pipeline, context, self.log, has_form=self.has_form)
            if batch.state is not BatchState.COMMITTED:
                given_back = hold_given_back(batch, wiring.ledger(self.pipeline))
                may_wait = patience(context, self.pipeline.schedule.busy_timeout_seconds)
                with timed_step(self.pipeline.pipeline, "load"), may_wait, given_back:
                    batch, phases = self._load(batch, context)
            _tell_result(batch, wiring.ledger(self.pipeline), self.log)
            if phases:
                send(phase_measurements(phases, batch.pipeline))
            return load_summary(batch, phases)

    def _load(self, batch: Batch, context: Context) -> tuple[Batch, LoadPhases | None]:
        # Imported now: it loads the client of Kafka.
        from kafka_ingest.spark.submission import loaded_batch, read_phases, require_unlocked

        with job_folder() as folder:
            outcome_file = folder / "outcome.json"
            require_unlocked(batch, wiring.ledger(self.pipeline))
            self._prepare(wiring.submission(self.pipeline, batch, outcome_file))
            try:
                output_tail = self._submit(context)
            finally:
                self.env_vars = None
            committed = loaded_batch(batch, wiring.ledger(self.pipeline), outcome_file, output_tail or "exit code 0")
            return committed, read_phases(outcome_file)

    def _prepare(self, submission: JobSubmission) -> None:
        self.application = submission.application
        self.py_files = submission.py_files
        self.application_args = list(submission.application_args)
        self.conf = dict(submission.conf)
        # The provider's hook looks for spark-submit on PATH: the one of this Python comes first.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        self.env_vars = {"PATH": path, **submission.env_vars}
        self.name = submission.name
        # The provider keeps a hook made of all this: executed twice, an operator would submit the first job again.
        self._hook = None

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        # Where ``LoggingMixin`` keeps its logger (``airflow/sdk/definitions/_internal/logging_mixin.py``, 3.3.2).
        hook._log = SparkSubmitLog(hook.log)
        return hook

    def _submit(self, context: Context) -> str:
        """Run spark-submit to its end; return its last words when it failed, else an empty text."""
        try:
            super().execute(context)
        except FileNotFoundError as fault:
            raise ConfigError(
                "spark-submit cannot be started",
                expected="spark-submit on the PATH of the Airflow worker",
                found=str(fault),
                next_command="pip install pyspark in the worker's environment, or put Spark's bin folder on its PATH",
                pipeline=self.pipeline.pipeline,
            ) from None
        except (AirflowException, RuntimeError) as fault:  # RuntimeError: where providers go for failures of their own
            return "\n".join(str(fault).splitlines()[-_LAST_LINES:])
        return ""


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
# Task *audit_batch*: checks the invariants and announces what was loaded as an asset event.
#
# Airflow stores the event together with the task's success. So the ledger learns that a batch is announced only then,
# in the callback of a success: an audit that dies before leaves its batches to the audit of the next run.


class AuditBatchOperator(BaseOperator):
    """Audits the batch of this run and announces it.

    Airflow sends asset events of successful tasks only. So this task succeeds when partitions were left out too, and
    ``ReportLeftOutOperator`` after it makes the run end red.

    Returns:
        ``core.summary.batch_summary`` of the audited batch.

    Args:
        pipeline: The pipeline, as ``adapters.pipeline_files.load_pipeline`` gives it.
    """

    ui_color = "#dcefdc"

    def __init__(self, *, pipeline: PipelineSettings, **kwargs: Any) -> None:
        self.asset = target_asset(pipeline.batch)
        callbacks = kwargs.pop("on_success_callback", None) or []
        callbacks = [*callbacks] if isinstance(callbacks, Sequence) else [callbacks]
        outlets = [self.asset, *kwargs.pop("outlets", [])]
        super().__init__(outlets=outlets, on_success_callback=[_announced, *callbacks], **kwargs)
        self.pipeline = pipeline
        self._report: AuditReport | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Audits, and hands Airflow the event; a run with nothing to tell of sends none.

        Raises:
            AirflowException: As ``operators/context.py`` says.
        """
        with airflow_outcome(self.log), timed_step(self.pipeline.pipeline, "audit"):
            report = self._report = self._audited(context)
            if report.has_news:
                context["outlet_events"][self.asset].extra.update(event_extra(report))
                self.log.info("%s", announced_text(self.asset.name, report.announced))
            else:
                # Airflow sends an event for every outlet that this copy of the task has when it succeeds (3.3.2,
                # _handle_current_task_success in airflow/sdk/execution_time/task_runner.py); the DAG's keeps it.
                self.outlets = [outlet for outlet in self.outlets if outlet != self.asset]
                self.log.info("Every invariant holds. Nothing was loaded: no asset event is sent")
            everything = f"python -m kafka_ingest audit {self.pipeline.pipeline} --all"
            self.log.info("Rows of the newest batch were counted; those of all batches: %s", everything)
            self._tell_others(report)
            return batch_summary(report.batch)

    def record_announcement(self, context: Context) -> None:
        """Store that the batches are announced, and count them; after the success of :meth:`execute` only.

        Airflow calls it also where its server refused the success, as of a task that somebody marked failed meanwhile:
        there is no event then. So the server is asked.
        """
        if self._report is None or not _has_succeeded(context):
            return
        record_announcement(self._report, wiring.ledger(self.pipeline))
        send(batch_measurements(self._report.announced))

    def _tell_others(self, report: AuditReport) -> None:
        """Send metrics and copy the position to the consumer group; a failure is a warning here."""
        settings, batch = self.pipeline, report.batch
        send(valid_through_measurements(batch, datetime.now(UTC)))
        view = read_for_metrics(settings, batch.request)
        if view:
            send(lag_measurements(settings, view))
        mirror_group(settings, lambda: view, lambda: wiring.group_mirror(settings))

    def _audited(self, context: Context) -> AuditReport:
        request, settings = request_of(context), self.pipeline
        ledger = wiring.ledger(settings)
        own = ledger.batch_of(settings.pipeline, request)
        if own is None:
            raise BatchNotCommitted(
                "this run has no batch to audit",
                expected="a batch planned by plan_batch or load_batch of the same run and task group",
                next_command="clear load_batch of this run (Airflow: task load_batch, Clear)",
                pipeline=settings.pipeline,
            )
        return audit_batch(own.batch_id, own.request, ledger)


def _announced(context: Context) -> None:
    """Run as callback of a success: the task in the context is the copy that was executed, not the one in the DAG."""
    task = context["task"]
    if isinstance(task, AuditBatchOperator):
        task.record_announcement(context)


def _has_succeeded(context: Context) -> bool:
    ti = context["ti"]
    states = ti.get_task_states(
        dag_id=ti.dag_id,
        task_ids=[ti.task_id],
        run_ids=[ti.run_id],
        map_index=None if ti.map_index is None or ti.map_index < 0 else ti.map_index,
    )
    return "success" in states.get(ti.run_id, {}).values()
