"""What batches and the ledger say in metrics: pure functions, sent by whoever has somewhere to send to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from itertools import groupby

from kafka_ingest.core import metrics
from kafka_ingest.core.batch import Batch, RecordCounts
from kafka_ingest.core.headroom import Headroom, headrooms, short_headrooms
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.load_phases import LoadPhases
from kafka_ingest.core.log_observations import newest
from kafka_ingest.core.metrics import Measurement, Metric
from kafka_ingest.core.settings import PipelineSettings


def batch_measurements(batches: Iterable[Batch]) -> Iterator[Measurement]:
    """Gives the counts of committed batches that nobody has announced before: so each batch is counted once.

    A task that dies between announcing and sending loses its counts; the ledger has them.
    """
    for batch in batches:
        if batch.announced_at is None:
            counts = batch.counts or RecordCounts()
            for metric, value in (
                (metrics.BATCHES, 1),
                (metrics.ROWS, counts.rows),
                (metrics.DEAD_LETTERS, counts.dead_letters),
                (metrics.TOMBSTONES, counts.tombstones),
                (metrics.FILTERED, counts.filtered),
                (metrics.INVISIBLE, counts.invisible),
            ):
                yield Measurement(metric, value, batch.pipeline)


def valid_through_measurements(batch: Batch, now: datetime) -> Iterator[Measurement]:
    """Gives the age of what a batch made complete."""
    if batch.valid_through is not None:
        yield Measurement(
            metrics.VALID_THROUGH_AGE, max(0.0, (now - batch.valid_through).total_seconds()), batch.pipeline
        )


def phase_measurements(phases: LoadPhases, pipeline: str) -> Iterator[Measurement]:
    """Gives how long each phase of a load took, and each part of its tasks' work."""
    for phase, seconds in (("session", phases.session), ("stage", phases.stage), ("publish", phases.publish)):
        yield Measurement(metrics.LOAD_PHASE_DURATION, seconds * 1_000, pipeline, (("phase", phase),))
    for part, seconds in asdict(phases.tasks).items():
        yield Measurement(metrics.STAGE_TASK_TIME, seconds * 1_000, pipeline, (("part", part),))


def lag_measurements(settings: PipelineSettings, view: PlanView) -> Iterator[Measurement]:
    """Gives the lag of the positions now, in the log as the newest plan saw it; nothing before a plan."""
    for topic, parts in _by_topic(view):
        yield _of_topic(metrics.LAG, sum(headroom.lag_offsets for headroom in parts), settings, topic)


def headroom_measurements(settings: PipelineSettings, view: PlanView) -> Iterator[Measurement]:
    """Gives headroom and what is wrong with it, as a plan has found it; nothing before a plan."""
    known = [headroom for topic, parts in _by_topic(view) for headroom in parts]
    for topic, parts in _by_topic(view):
        # Retention may come up to a position that has read everything: an empty log has nothing to lose.
        at_risk = [headroom for headroom in parts if headroom.high_watermark > headroom.log_start_offset]
        if at_risk:
            yield _of_topic(metrics.HEADROOM_OFFSETS, min(headroom.offsets for headroom in at_risk), settings, topic)
        if seconds := [headroom.seconds for headroom in at_risk if headroom.seconds is not None]:
            yield _of_topic(metrics.HEADROOM_SECONDS, min(seconds), settings, topic)
    if known:
        yield Measurement(metrics.SHORT_HEADROOM, len(short_headrooms(known, settings.watch)), settings.pipeline)
        yield Measurement(metrics.STALLED, sum(headroom.is_stalled for headroom in known), settings.pipeline)


def _by_topic(view: PlanView) -> Iterator[tuple[str, list[Headroom]]]:
    known = headrooms(view.positions, newest(view.observations))
    for topic, parts in groupby(known, key=lambda headroom: headroom.where.topic):
        yield topic, list(parts)


def _of_topic(metric: Metric, value: float, settings: PipelineSettings, topic: str) -> Measurement:
    return Measurement(metric, value, settings.pipeline, (("topic", topic),))
