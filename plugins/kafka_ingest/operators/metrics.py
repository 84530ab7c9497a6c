"""Sends metrics through Airflow's own stats: StatsD, Datadog or OpenTelemetry, whichever the deployment has chosen."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from airflow.providers.common.compat.sdk import Stats

from kafka_ingest.core.batch import Request
from kafka_ingest.core.errors import IngestError
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.metrics import STEP_DURATION, Measurement, MetricKind
from kafka_ingest.core.settings import PipelineSettings
from kafka_ingest.operators import wiring

_log = logging.getLogger(__name__)

_SENDERS: Mapping[MetricKind, Callable[..., None]] = {
    MetricKind.COUNTER: Stats.incr,
    MetricKind.GAUGE: Stats.gauge,
    MetricKind.TIMER: Stats.timing,
}


def view_to_tell(pipeline: PipelineSettings, request: Request) -> PlanView | None:
    """Reads the ledger for metrics, after the task's work is done.

    Returns:
        ``None``, with a warning, when it could not be read: that fails no task.
    """
    try:
        return wiring.ledger(pipeline).plan_view(pipeline.pipeline, request, pipeline.batch.target)
    except IngestError as error:
        _log.warning("Lag and headroom are not sent: %s", error)
        return None


def send(measurements: Iterable[Measurement]) -> None:
    """Sends each value under its name, with its tags; nothing where Airflow's configuration has no ``[metrics]``."""
    for measurement in measurements:
        tags = {"pipeline": measurement.pipeline, **dict(measurement.tags)}
        _SENDERS[measurement.metric.kind](measurement.metric.name, measurement.value, tags=tags)


@contextmanager
def timed_step(pipeline: str, step: str) -> Iterator[None]:
    """Sends how long a step took, when it ends without an error."""
    began = time.monotonic()
    yield
    milliseconds = (time.monotonic() - began) * 1_000
    send([Measurement(STEP_DURATION, milliseconds, pipeline, (("step", step),))])
