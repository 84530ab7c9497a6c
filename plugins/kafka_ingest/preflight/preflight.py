"""Step *preflight*: looks at everything that a pipeline rests on. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kafka_ingest.errors import IngestError
from kafka_ingest.preflight.database import (
    LEFTOVER_DAYS,
    housekeeping_result,
    ledger_result,
    right_results,
    server_result,
    target_results,
)
from kafka_ingest.preflight.facts import CheckResult, DatabaseProbe, PreflightPorts, SparkProbe, Verdict, failed
from kafka_ingest.preflight.kafka import cluster_result, topic_results
from kafka_ingest.preflight.spark import authentication_results, master_result, not_looked_at, package_results
from kafka_ingest.settings import PipelineSettings


def preflight(
    settings: PipelineSettings, ports: PreflightPorts, *, submit_job: bool = False
) -> tuple[CheckResult, ...]:
    """Check Kafka, the database and Spark for one pipeline, in this order; idempotent, and write nothing.

    A check that gets no answer is a result like any other: it never keeps the others from being made.

    Args:
        settings: The pipeline.
        ports: The world.
        submit_job: Run a small Spark job that looks at the packages of the executors.
    """
    return (*_kafka(settings, ports), *_database(settings, ports), *_spark(settings, ports, submit_job=submit_job))


def _kafka(settings: PipelineSettings, ports: PreflightPorts) -> Iterator[CheckResult]:
    try:
        with ports.kafka() as kafka:
            yield cluster_result(kafka.cluster())
            interval = ports.longest_interval_seconds(settings.schedule)
            yield from _judged(
                "topics", lambda: topic_results(settings, kafka.topics(settings), kafka.limits(), interval)
            )
    except IngestError as fault:
        yield failed("kafka", fault)


def _database(settings: PipelineSettings, ports: PreflightPorts) -> Iterator[CheckResult]:
    try:
        database = ports.database()
        yield server_result(database.server())
    except IngestError as fault:
        yield failed("postgresql", fault)
        return
    yield from _judged("ledger", lambda: [ledger_result(database.ledger_version())])
    yield from _judged("privileges", lambda: right_results(database.missing_rights(settings.batch)))
    yield from _judged("target table", lambda: _target(settings, database))
    yield from _housekeeping(settings, database)


def _housekeeping(settings: PipelineSettings, database: DatabaseProbe) -> Iterator[CheckResult]:
    try:
        yield housekeeping_result(database.old_leftovers(LEFTOVER_DAYS), settings.batch.target_connection)
    except IngestError:
        return  # Who cannot read the ledger is told so by the lines above.


def _target(settings: PipelineSettings, database: DatabaseProbe) -> Iterator[CheckResult]:
    return target_results(settings.batch.target, database.target(settings.batch))


def _spark(settings: PipelineSettings, ports: PreflightPorts, *, submit_job: bool) -> Iterator[CheckResult]:
    try:
        spark = ports.spark()
        master = spark.master()
    except IngestError as fault:
        yield failed("spark", fault)
        return
    reached = master_result(master)
    yield reached
    yield from authentication_results(master)
    if submit_job and reached.result is not Verdict.FAIL:
        yield from _judged("python packages", lambda: package_results(spark.this_interpreter(), spark.executors()))
    elif master.is_this_python:
        yield from _own_packages(spark)
    else:
        yield not_looked_at(settings.pipeline)


def _own_packages(spark: SparkProbe) -> Iterator[CheckResult]:
    own = spark.this_interpreter()
    return package_results(own, [own])


def _judged(check: str, judge: Callable[[], Iterable[CheckResult]]) -> Iterator[CheckResult]:
    try:
        yield from judge()
    except IngestError as fault:
        yield failed(check, fault)
