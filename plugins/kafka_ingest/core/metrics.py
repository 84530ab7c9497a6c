"""Every metric: name, kind, unit, meaning and tags. ``docs/metrics.md`` is generated from here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """How a value is to be read, in StatsD's words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    TIMER = "timer"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: Name, before which Airflow puts its own prefix (``[metrics] statsd_prefix``).
        kind: Counter, gauge or timer.
        unit: What one is.
        meaning: What it says, in a sentence or two.
        tags: Names of its tags, beside ``pipeline``, which all have.
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
