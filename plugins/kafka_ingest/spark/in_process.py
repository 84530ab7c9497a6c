"""A load in this process, a task's or a command's: the job's own code with its guards and staging tables, no Spark."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TextIO

from kafka_ingest.postgres.faults import trace_without_payload
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.secrets import scrubbed, secret_values
from kafka_ingest.spark.archive import job_code
from kafka_ingest.spark.submission import JobEnvironment

_log = logging.getLogger(__name__)

_JOB = "spark_jobs"


def load_in_process(
    batch: Batch, environment: JobEnvironment, outcome_file: Path, *, log_to: TextIO | None = None
) -> str:
    """Load a planned batch as the Spark job does, one task after another, here; memory is that of one task.

    Args:
        batch: The batch.
        environment: What a job gets from its submitter.
        outcome_file: Where the job says what came of the batch, an expected fault too (``spark/submission.py``).
        log_to: What the job logs goes there, too, in the form of a job that Spark runs.

    Returns:
        How it ended, for a load that left no outcome.
    """
    secrets = secret_values(environment.kafka, environment.postgres, environment.registry)
    with _job_imported() as job, _shown(log_to, secrets) if log_to else nullcontext():
        try:
            code = job.load_planned(batch.pipeline, batch.batch_id, environment, outcome_file, runner="in-process")
        except Exception as error:  # noqa: BLE001 (the ledger says what came of the batch)
            _log.critical("unexpected error\n%s", scrubbed(trace_without_payload(error), secrets))
            return f"{type(error).__name__}; the log above has the trace"
    return f"exit code {code}"


@contextmanager
def _shown(stream: TextIO, secrets: Sequence[str]) -> Iterator[None]:
    """Show what this package logs, while the job's code is imported."""
    package = logging.getLogger("kafka_ingest")
    handler, level = import_module(f"{_JOB}.process").job_handler(stream, secrets), package.level
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(level)


@contextmanager
def _job_imported() -> Iterator[ModuleType]:
    """Import the job's code by its path: it is on no path of Airflow's, where another package may have its name."""
    others = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == _JOB}
    for name in others:
        del sys.modules[name]
    try:
        package = sys.modules[_JOB] = ModuleType(_JOB)
        package.__path__ = [str(job_code())]
        yield import_module(f"{_JOB}.load_job")
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == _JOB]:
            del sys.modules[name]
        sys.modules |= others
