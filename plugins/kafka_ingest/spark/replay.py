"""Requests about dead letters, in a process of the job's code: without Spark and without a JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kafka_ingest.errors import RetryLater
from kafka_ingest.protocol.dead_letters import DeadLetterReport, DeadLetterRequest
from kafka_ingest.settings import PipelineSettings
from kafka_ingest.spark.archive import entry_script, job_archive, job_folder
from kafka_ingest.spark.submission import hand_over, read_document, without_airflows_variables, write_document

# Decoding loads Arrow and the job's code, which neither Airflow's workers nor the command line import.


@dataclass(frozen=True, slots=True)
class ReplayOrder:
    """What the process gets.

    Attributes:
        postgres: libpq parameters, with secrets.
        pipeline: The pipeline as its file says today.
        request: Who asks for what, and why.
        apply: Do it; else only show what it would do.
        registry: Configuration of the schema registry, with secrets; empty for a pipeline without one.
    """

    postgres: Mapping[str, str] = field(repr=False)
    pipeline: PipelineSettings
    request: DeadLetterRequest
    apply: bool
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)


def write_report(path: Path, report: DeadLetterReport) -> None:
    """Write what was done, or would be."""
    write_document(path, {"report": msgspec.to_builtins(report)})


def run_replay(order: ReplayOrder, tell: Callable[[str], None]) -> DeadLetterReport:
    """Replay or discard dead letters in a process of their own, and wait for it.

    Args:
        order: What the process gets; its secrets travel in a file that it deletes at once.
        tell: Called with each line of its log.

    Raises:
        IngestError: The process's own error.
        RetryLater: It ended without an answer; the same request again decides.
    """
    with job_folder() as folder:
        outcome_file = folder / "outcome.json"
        code = _run(hand_over(order, outcome_file), tell)
        document = read_document(outcome_file)
    if not document:
        raise RetryLater(
            "the process that resolves dead letters ended without an answer",
            expected="a report, or an error written by the process",
            found=f"exit code {code}",
            next_command=f"ask again with the request id {order.request.request_id}: it is done once; "
            "the lines above this message are the process's log",
            pipeline=order.request.pipeline,
        )
    return msgspec.convert(document["report"], DeadLetterReport)


def _run(variables: Mapping[str, str], tell: Callable[[str], None]) -> int:
    command = [sys.executable, str(entry_script("replay_dead_letters"))]
    environment = {
        **os.environ,
        **without_airflows_variables(),
        "PYTHONPATH": str(job_archive()),
        **variables,
    }
    # The command consists of our own script; no shell is involved.
    with subprocess.Popen(  # noqa: S603
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None  # noqa: S101 - a pipe
        try:
            for line in process.stdout:
                tell(line.rstrip())
        except BaseException:
            process.kill()
            raise
    return process.returncode
