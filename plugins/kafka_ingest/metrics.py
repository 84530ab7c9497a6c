"""Every metric with its unit and meaning, and how it is measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from math import nan

from kafka_ingest.protocol.batch import Batch, LoadPhases, RecordCounts
from kafka_ingest.protocol.ledger_view import PlanView
from kafka_ingest.protocol.log import Headroom, headrooms, newest, short_headrooms
from kafka_ingest.settings import PipelineSettings

# ----------
# The metrics. ``docs/metrics.md`` is generated from here.


class MetricKind(StrEnum):
    """How to read a value, in StatsD's words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    TIMER = "timer"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: Name; Airflow puts its own prefix before it (``[metrics] statsd_prefix``).
        kind: Counter, gauge or timer.
        unit: What one is.
        meaning: What it says, in a sentence or two.
        tags: Names of its tags besides ``pipeline``, which all have.
    """

    name: str
    kind: MetricKind
    unit: str
    meaning: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measurement:
    """One value of a metric, with the values of its tags; ``is_change``: what a gauge goes up by."""

    metric: Metric
    value: float
    pipeline: str
    tags: tuple[tuple[str, str], ...] = ()
    is_change: bool = False


def _counter(name: str, unit: str, meaning: str) -> Metric:
    return Metric(f"kafka_ingest.{name}", MetricKind.COUNTER, unit, meaning)


def _gauge(name: str, unit: str, meaning: str, *tags: str) -> Metric:
    return Metric(f"kafka_ingest.{name}", MetricKind.GAUGE, unit, meaning, tags)


BATCHES = _counter("batches", "batches", "Committed batches, those with nothing to read included.")
ROWS = _counter("rows", "rows", "Rows written to the target. A reload counts what it writes again.")
DELETES = _counter("deletes", "records", "Deletes of keys that were applied, also those that hit no row.")
SUPERSEDED = _counter(
    "superseded", "records", "Records that a newer version of their key outdid, in the batch or in the table."
)
DEAD_LETTERS = _counter("dead_letters", "records", "Records that did not fit and were kept as dead letters.")
TOMBSTONES = _counter("tombstones", "records", "Records without a value that were only counted (`tombstones: count`).")
FILTERED = _counter("filtered", "records", "Records that the pipeline's own filter left out.")
INVISIBLE = _counter(
    "invisible_offsets",
    "offsets",
    "Offsets without a readable record: transaction markers, aborted and compacted records.",
)

LAG = _gauge(
    "lag_offsets",
    "offsets",
    "Offsets that wait: end offset at the newest plan minus committed offset, over all partitions of the topic. Sent "
    "after a plan, as the whole backlog, and after an audit, as what the batch has left.",
    "topic",
)
HEADROOM_OFFSETS = _gauge(
    "headroom_offsets",
    "offsets",
    "Committed offset minus log start offset at a plan, the least over the topic's partitions whose log is not empty. "
    "Below 0, records are lost. Not a number (NaN) where all logs are empty, so that no older value stays.",
    "topic",
)
HEADROOM_SECONDS = _gauge(
    "headroom_seconds",
    "seconds",
    "Estimated time until retention reaches the committed offset, at the rate that plans observed over 12 to 24 hours, "
    "the least over the same partitions. Not a number (NaN) while no log start moves, and in the first hour.",
    "topic",
)
SHORT_HEADROOM = _gauge(
    "short_headroom_partitions",
    "partitions",
    "Partitions whose headroom at a plan is below `alerts.min_headroom_offsets` or `alerts.min_headroom_seconds` while "
    "records wait. Alert on anything above 0.",
)
STALLED = _gauge(
    "stalled_partitions",
    "partitions",
    "Partitions in which an open producer transaction lets nothing be read although records wait.",
)
VALID_THROUGH_AGE = _gauge(
    "valid_through_age_seconds",
    "seconds",
    "How old the time is up to which all partitions are complete in the target (`valid_through`), when a run ends. Not "
    "sent while it is unknown.",
)
VALID_THROUGH = _gauge(
    "valid_through_timestamp_seconds",
    "Unix time",
    "The same time itself: what is subtracted from the time now grows also while nothing runs.",
)
PLANNED = _gauge(
    "planned_timestamp_seconds", "Unix time", "When the batch of the newest plan was planned: Kafka was asked then."
)
LAST_SUCCESS = _gauge(
    "last_success_timestamp_seconds", "Unix time", "When a batch was audited that nobody had announced before."
)
NEXT_RUN_DUE = _gauge(
    "next_run_due_timestamp_seconds",
    "Unix time",
    "First moment of the schedule after the plan of that batch: a run of then is late when this does not move on. Not "
    "sent without a schedule, nor from a DAG of your own.",
)
FAILED_RUNS = _gauge(
    "failed_runs_in_a_row",
    "runs",
    "Goes up by 1 when `plan`, `load` or `audit` fails and no retry follows, to 0 with the next success. StatsD and "
    "its exporter add up; other backends show 1 after each failed run. A task that is killed says nothing.",
)

STEP_FAILURES = Metric(
    "kafka_ingest.step_failures",
    MetricKind.COUNTER,
    "tries",
    "Failed tries of `plan`, `load` or `audit`, also those that are tried again, by the error's class "
    "([runbook](runbook.md)). Waiting for another run is no failure.",
    ("step", "fault"),
)

STEP_DURATION = Metric(
    "kafka_ingest.step_duration",
    MetricKind.TIMER,
    "milliseconds",
    "How long a task that succeeded took: `plan`, `load` (Spark's start included) or `audit`.",
    ("step",),
)
LOAD_PHASE_DURATION = Metric(
    "kafka_ingest.load_phase_duration",
    MetricKind.TIMER,
    "milliseconds",
    "How long a phase of a load took: `session` (until Spark can take tasks), `stage` (all tasks) or `publish`.",
    ("phase",),
)
STAGE_TASK_TIME = Metric(
    "kafka_ingest.stage_task_time",
    MetricKind.TIMER,
    "milliseconds",
    "What the tasks of a load did in `stage`, summed over tasks, which run side by side: `read` (wait for Kafka), "
    "`decode` or `copy` (to staging).",
    ("part",),
)

#: In the order of the documentation.
METRICS = (
    BATCHES,
    ROWS,
    DELETES,
    SUPERSEDED,
    DEAD_LETTERS,
    TOMBSTONES,
    FILTERED,
    INVISIBLE,
    LAG,
    HEADROOM_OFFSETS,
    HEADROOM_SECONDS,
    SHORT_HEADROOM,
    STALLED,
    VALID_THROUGH_AGE,
    VALID_THROUGH,
    PLANNED,
    LAST_SUCCESS,
    NEXT_RUN_DUE,
    FAILED_RUNS,
    STEP_FAILURES,
    STEP_DURATION,
    LOAD_PHASE_DURATION,
    STAGE_TASK_TIME,
)


# ----------
# Measurements from batches and the ledger: pure functions; the caller sends them.


def batch_measurements(batches: Iterable[Batch]) -> Iterator[Measurement]:
    """Yield the counts of committed batches that nobody has announced before, so that each batch counts once.

    A task that dies between announcing and sending loses its counts; the ledger has them.
    """
    for batch in batches:
        if batch.announced_at is None:
            counts = batch.counts or RecordCounts()
            for metric, value in (
                (BATCHES, 1),
                (ROWS, counts.rows),
                (DELETES, counts.deletes),
                (SUPERSEDED, counts.superseded),
                (DEAD_LETTERS, counts.dead_letters),
                (TOMBSTONES, counts.tombstones),
                (FILTERED, counts.filtered),
                (INVISIBLE, counts.invisible),
            ):
                yield Measurement(metric, value, batch.pipeline)


def success_measurements(batch: Batch, now: datetime, next_run_due: datetime | None) -> Iterator[Measurement]:
    """Yield that a run has succeeded, and up to which time its batch made the table complete.

    Nothing of a batch that was announced before: whoever clears an old audit must not turn the clock back.

    Args:
        batch: The audited batch.
        now: The time.
        next_run_due: When the schedule wants the run after this one; ``None`` without a schedule.
    """
    if batch.announced_at is not None:
        return
    yield Measurement(LAST_SUCCESS, now.timestamp(), batch.pipeline)
    yield Measurement(FAILED_RUNS, 0, batch.pipeline)
    if next_run_due is not None:
        yield Measurement(NEXT_RUN_DUE, next_run_due.timestamp(), batch.pipeline)
    if batch.valid_through is not None:
        yield Measurement(VALID_THROUGH, batch.valid_through.timestamp(), batch.pipeline)
        yield Measurement(VALID_THROUGH_AGE, max(0.0, (now - batch.valid_through).total_seconds()), batch.pipeline)


def failure_measurements(pipeline: str, step: str, fault: str, *, is_last_try: bool) -> Iterator[Measurement]:
    """Yield that a try of a step has failed, and with the last try that its run has.

    Args:
        pipeline: Name of the pipeline.
        step: ``plan``, ``load`` or ``audit``.
        fault: Class of the error.
        is_last_try: Whether Airflow does not try the task again.
    """
    yield Measurement(STEP_FAILURES, 1, pipeline, (("step", step), ("fault", fault)))
    if is_last_try:
        yield Measurement(FAILED_RUNS, 1, pipeline, is_change=True)


def plan_measurements(settings: PipelineSettings, batch: Batch, view: PlanView) -> Iterator[Measurement]:
    """Yield when the newest plan was made, and what it saw of the log."""
    yield Measurement(PLANNED, batch.planned_at.timestamp(), settings.pipeline)
    yield from lag_measurements(settings, view)
    yield from headroom_measurements(settings, view)


def phase_measurements(phases: LoadPhases, pipeline: str) -> Iterator[Measurement]:
    """Yield how long each phase of a load took, and each part of its tasks' work."""
    for phase, seconds in (("session", phases.session), ("stage", phases.stage), ("publish", phases.publish)):
        yield Measurement(LOAD_PHASE_DURATION, seconds * 1_000, pipeline, (("phase", phase),))
    for part, seconds in asdict(phases.tasks).items():
        yield Measurement(STAGE_TASK_TIME, seconds * 1_000, pipeline, (("part", part),))


def lag_measurements(settings: PipelineSettings, view: PlanView) -> Iterator[Measurement]:
    """Yield the lag of the positions now, in the log as the newest plan saw it; nothing before a plan."""
    for topic, parts in _by_topic(view):
        yield _of_topic(LAG, sum(headroom.lag_offsets for headroom in parts), settings, topic)


def headroom_measurements(settings: PipelineSettings, view: PlanView) -> Iterator[Measurement]:
    """Yield headroom as the newest plan found it, and what is wrong with it; nothing before a plan."""
    known = [headroom for topic, parts in _by_topic(view) for headroom in parts]
    for topic, parts in _by_topic(view):
        # Retention may come up to a position that has read everything: an empty log has nothing to lose.
        at_risk = [headroom for headroom in parts if headroom.high_watermark > headroom.log_start_offset]
        yield _of_topic(HEADROOM_OFFSETS, min((h.offsets for h in at_risk), default=nan), settings, topic)
        seconds = (h.seconds for h in at_risk if h.seconds is not None)
        yield _of_topic(HEADROOM_SECONDS, min(seconds, default=nan), settings, topic)
    if known:
        yield Measurement(SHORT_HEADROOM, len(short_headrooms(known, settings.watch)), settings.pipeline)
        yield Measurement(STALLED, sum(headroom.is_stalled for headroom in known), settings.pipeline)


def _by_topic(view: PlanView) -> Iterator[tuple[str, list[Headroom]]]:
    known = headrooms(view.positions, newest(view.observations))
    for topic, parts in groupby(known, key=lambda headroom: headroom.where.topic):
        yield topic, list(parts)


def _of_topic(metric: Metric, value: float, settings: PipelineSettings, topic: str) -> Measurement:
    return Measurement(metric, value, settings.pipeline, (("topic", topic),))
