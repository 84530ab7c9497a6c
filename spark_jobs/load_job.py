"""The Spark job: build the ports, load one planned batch, report what came of it. ``load_batch.py`` starts it."""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from secrets import randbelow

from kafka_ingest.errors import OK, ConfigError, Fenced, IngestError, exit_code, naming
from kafka_ingest.kafka.log import KafkaLog
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.publisher import PostgresPublisher
from kafka_ingest.postgres.schema_changes import PostgresSchemaEvolution
from kafka_ingest.postgres.staging_tables import PostgresStaging
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.protocol.batch import Batch, LoadPhases
from kafka_ingest.protocol.load import LoadPorts, LoadProgress, load_batch
from kafka_ingest.protocol.ports import TaskRunner
from kafka_ingest.protocol.staging import StageContext, StageResult, StageTask, one_result_per_task
from kafka_ingest.report import batch_summary
from kafka_ingest.secrets import secret_values
from kafka_ingest.spark.archive import keep_job_folder
from kafka_ingest.spark.submission import JobEnvironment, take_environment, write_batch, write_error
from kafka_ingest.times import SystemClock
from spark_jobs.process import leave_no_core_file, set_up_logging, start_arrow_without_pandas


def stage_context(batch: Batch, environment: JobEnvironment) -> StageContext:
    """Build the context of a batch's attempt; read the target's columns and CHECKs from the database.

    Raises:
        DatabaseUnavailable: The database cannot be reached.
        TargetMismatch: The target does not exist.
    """
    return StageContext(
        batch_id=batch.batch_id,
        claim=batch.claim,
        settings=batch.settings,
        target=PostgresTarget(environment.postgres).shape(batch.settings),
        kafka=environment.kafka,
        postgres=environment.postgres,
        no_progress_timeout_seconds=environment.job.no_progress_timeout_seconds,
        registry=environment.registry,
    )


class InProcessRunner:
    """The port ``TaskRunner`` without Spark, for small batches and for tests: one task at a time in this process.

    Args:
        context_of: Gives the context of an attempt.
        tasks: How many tasks to cut a batch into.
    """

    def __init__(self, context_of: Callable[[Batch], StageContext], *, tasks: int = 1) -> None:
        self._context_of = context_of
        self._tasks = tasks
        # Attempt ids need only differ within an attempt's staging tables; a random start makes mixing them up visible.
        self._attempts = itertools.count(randbelow(2**62))
        self._cancelled = threading.Event()

    def parallelism(self) -> int:
        """Return the number of tasks that a batch is cut into."""
        return self._tasks

    def run(self, batch: Batch, tasks: Sequence[StageTask]) -> Sequence[StageResult]:
        """Stage all tasks in their order; a fault ends it at once."""
        context = self._context_of(batch)
        try:
            return one_result_per_task(tasks, [self._run(task, context, batch) for task in tasks])
        except ImportError as error:
            raise ConfigError(
                "this Python cannot load in process",
                expected="the packages of docs/deploying.md (Which packages)",
                found=str(error),
                next_command=f"install them here, then: python -m kafka_ingest preflight {batch.pipeline}",
            ) from None

    def cancel(self) -> None:
        """Stop before the next task begins."""
        self._cancelled.set()

    def release(self) -> None:
        """Do nothing: there is nothing to close."""

    def _run(self, task: StageTask, context: StageContext, batch: Batch) -> StageResult:
        if self._cancelled.is_set():
            raise Fenced("staging was cancelled", pipeline=batch.pipeline, batch_id=batch.batch_id)
        leave_no_core_file()
        # Only here: the driver of a Spark job has no use for Arrow, and loading it takes a second.
        start_arrow_without_pandas()
        from spark_jobs.stage import stage_task

        return stage_task(task, context, next(self._attempts))


_log = logging.getLogger("kafka_ingest.job")


def main(arguments: Sequence[str] | None = None) -> int:
    """Load the batch and return the exit code. Expected faults show their message, never a trace."""
    options = _options(arguments)
    set_up_logging([])
    try:
        environment, outcome_file = take_environment(os.environ, JobEnvironment)
    except IngestError as error:
        # The four-part message is complete: a trace of an expected fault would only bury it.
        _log.error("%s", error)
        return exit_code(error)
    keep_job_folder(outcome_file.parent)
    set_up_logging(secret_values(environment.kafka, environment.postgres, environment.registry))
    return load_planned(options.pipeline, options.batch_id, environment, outcome_file, runner="spark")


def load_planned(pipeline: str, batch_id: str, environment: JobEnvironment, outcome_file: Path, *, runner: str) -> int:
    """Load a planned batch, write what came of it, and return the exit code.

    Args:
        pipeline: Its name, for messages.
        batch_id: The batch.
        environment: What the submitter has handed over.
        outcome_file: Gets the batch, or the error that this package recognises.
        runner: ``spark``, or ``in-process``: tasks one after another in this process.
    """
    try:
        batch, phases = _load(pipeline, batch_id, environment, runner)
    except IngestError as error:
        write_error(outcome_file, error)
        # The submitter of this job logs the whole error; here, too, it would be in the task's log twice.
        _log.warning("this attempt ends with %s", type(error).__name__)
        return exit_code(error)
    write_batch(outcome_file, batch_summary(batch), phases)
    return OK


def progress_line(progress: LoadProgress) -> str:
    """Return the line that a person follows in the task log."""
    if progress.step == "publish":
        return f"publishing: {progress.records:,} records of {progress.total_offsets:,} offsets, in one transaction"
    if not progress.records:
        return f"staging: no records yet of {progress.total_offsets:,} offsets"
    return (
        f"staging: {progress.records:,} records, {progress.records_per_second:,.0f} a second; "
        f"{progress.offsets:,} of {progress.total_offsets:,} offsets ({progress.offsets / progress.total_offsets:.0%})"
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="load_batch.py", description="Load one planned batch.")
    parser.add_argument("--pipeline", required=True, help="name, for the log")
    parser.add_argument("--batch-id", required=True, help="the planned batch")
    return parser.parse_args(arguments)


def _load(pipeline: str, batch_id: str, environment: JobEnvironment, runner: str) -> tuple[Batch, LoadPhases | None]:
    _log.info("loading batch %s of pipeline %s", batch_id, pipeline)
    ports = load_ports(environment, _runner(runner, environment))
    published: list[LoadPhases] = []
    with naming(pipeline, batch_id):  # the step itself knows no pipeline before it has the claim
        batch = load_batch(batch_id, ports, hold=environment.hold, report=_report, on_published=published.append)
    for phases in published:
        _log.info("%s", phases)
    return batch, next(iter(published), None)


def load_ports(environment: JobEnvironment, runner: TaskRunner) -> LoadPorts:
    """Return the ports that the job loads with."""
    return LoadPorts(
        ledger=PostgresLedger(environment.postgres),
        log=KafkaLog(environment.kafka),
        staging=PostgresStaging(environment.postgres),
        runner=runner,
        publisher=PostgresPublisher(environment.postgres),
        clock=SystemClock(),
        evolution=PostgresSchemaEvolution(environment.postgres),
    )


def _report(progress: LoadProgress) -> None:
    _log.info(progress_line(progress))


def _runner(kind: str, environment: JobEnvironment) -> TaskRunner:
    context_of = partial(stage_context, environment=environment)
    if kind == "in-process":
        return InProcessRunner(context_of, tasks=environment.job.tasks or 1)
    # Only here: a load in process needs no PySpark, which takes a second.
    from spark_jobs.spark_runner import SparkTaskRunner

    timeout = environment.hold.start_timeout_seconds
    return SparkTaskRunner(context_of, tasks=environment.job.tasks, executor_timeout_seconds=timeout)


if __name__ == "__main__":
    sys.exit(main())
