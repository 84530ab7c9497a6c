"""Every metric with its unit and meaning, and how it is measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby

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
    """One value of a metric, with the values of its tags."""

    metric: Metric
    value: float
    pipeline: str
    tags: tuple[tuple[str, str], ...] = ()


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
    "Below 0, records are lost.",
    "topic",
)
HEADROOM_SECONDS = _gauge(
    "headroom_seconds",
    "seconds",
    "Estimated time until retention reaches the committed offset, at the rate that plans observed over 12 to 24 hours, "
    "the least over the same partitions. Not sent while no log start moves, and in the first hour.",
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
    "How old the time is up to which all partitions are complete in the target (`valid_through`). Not sent while it is "
    "unknown.",
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


def valid_through_measurements(batch: Batch, now: datetime) -> Iterator[Measurement]:
    """Yield the age of the time up to which a batch made the table complete."""
    if batch.valid_through is not None:
        yield Measurement(VALID_THROUGH_AGE, max(0.0, (now - batch.valid_through).total_seconds()), batch.pipeline)


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
        if at_risk:
            yield _of_topic(HEADROOM_OFFSETS, min(headroom.offsets for headroom in at_risk), settings, topic)
        if seconds := [headroom.seconds for headroom in at_risk if headroom.seconds is not None]:
            yield _of_topic(HEADROOM_SECONDS, min(seconds), settings, topic)
    if known:
        yield Measurement(SHORT_HEADROOM, len(short_headrooms(known, settings.watch)), settings.pipeline)
        yield Measurement(STALLED, sum(headroom.is_stalled for headroom in known), settings.pipeline)


def _by_topic(view: PlanView) -> Iterator[tuple[str, list[Headroom]]]:
    known = headrooms(view.positions, newest(view.observations))
    for topic, parts in groupby(known, key=lambda headroom: headroom.where.topic):
        yield topic, list(parts)


def _of_topic(metric: Metric, value: float, settings: PipelineSettings, topic: str) -> Measurement:
    return Measurement(metric, value, settings.pipeline, (("topic", topic),))
