"""Step *preflight*: looks at everything that a pipeline rests on. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from kafka_ingest.preflight.database import PostgresPreflight, database_results
from kafka_ingest.preflight.facts import CheckResult, answered
from kafka_ingest.preflight.kafka import KafkaPreflight, kafka_results
from kafka_ingest.preflight.spark import SparkPreflight, spark_results
from kafka_ingest.settings import PipelineSettings


@dataclass(frozen=True, slots=True)
class PreflightPorts:
    """Opens the probes of one pipeline: each when its first check asks, so that a broken connection fails that one."""

    kafka: Callable[[], AbstractContextManager[KafkaPreflight]]
    database: Callable[[], PostgresPreflight]
    spark: Callable[[], SparkPreflight]


def preflight(
    settings: PipelineSettings, ports: PreflightPorts, *, submit_job: bool = False
) -> tuple[CheckResult, ...]:
    """Check Kafka, the database and Spark for one pipeline, in this order; idempotent, and write nothing.

    A check that gets no answer is a result like any other: it never keeps the others from being made.

    Args:
        settings: The pipeline.
        ports: Opens the probes.
        submit_job: Run a small Spark job that looks at the packages of the executors.
    """
    return (
        *answered("kafka", lambda: _kafka(settings, ports)),
        *answered("postgresql", lambda: database_results(settings.batch, ports.database())),
        *answered("spark", lambda: spark_results(settings, ports.spark(), submit_job=submit_job)),
    )


def _kafka(settings: PipelineSettings, ports: PreflightPorts) -> Iterator[CheckResult]:
    with ports.kafka() as probe:
        yield from kafka_results(settings, probe)
