"""What preflight asks of Spark: whether its master can be reached, and a small job for the executors' packages."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
from collections.abc import Sequence

from kafka_ingest.adapters.connections import ConnectionValues, spark_master_of
from kafka_ingest.adapters.job_folder import job_folder
from kafka_ingest.adapters.job_submission import is_authenticated, package_report_submission, spark_submit_command
from kafka_ingest.adapters.python_packages import read_report, this_interpreter
from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.preflight_facts import InterpreterFacts, MasterFacts
from kafka_ingest.core.settings import PipelineSettings

_LOG = logging.getLogger(__name__)

_CONNECT_SECONDS = 5.0
#: The job itself takes seconds; the rest is for a busy cluster to give it cores.
_JOB_SECONDS = 300.0
#: A named error with a message, as Java and Python print it; a trace's own heading has none.
_NAMED_ERROR = re.compile(r"^(?!\s+at ).*?([\w.$]+(?:Error|Exception): (?!Traceback).+)$", re.MULTILINE)
#: What Spark says before the error of the task that made it give up (``TaskSetManager``, Spark 4.2).
_FAILURE = "most recent failure: Lost task"


class SparkPreflight:
    """The port ``SparkProbe`` on a local or a standalone master.

    Args:
        settings: The pipeline, which says how its job is run.
        connection: The Spark connection.
    """

    def __init__(self, settings: PipelineSettings, connection: ConnectionValues) -> None:
        self._settings = settings
        self._connection = connection

    def master(self) -> MasterFacts:
        """Looks for the master; see the port."""
        master = spark_master_of(self._connection)
        authenticated = is_authenticated(self._settings.job, self._connection)
        if master.startswith("local"):
            is_this_python = "spark.pyspark.python" not in dict(self._settings.job.conf)
            return MasterFacts(master, is_this_python=is_this_python, is_authenticated=authenticated)
        # Several masters, of which one leads: spark://one:7077,two:7077.
        answers = {address: _refusal(address) for address in master.removeprefix("spark://").split(",")}
        return MasterFacts(
            master,
            unreachable=tuple(f"{address}: {refusal}" for address, refusal in answers.items() if refusal),
            reachable=tuple(address for address, refusal in answers.items() if not refusal),
            is_this_python=False,
            is_authenticated=authenticated,
        )

    def this_interpreter(self) -> InterpreterFacts:
        """Describes the interpreter that asks; see the port."""
        return this_interpreter()

    def executors(self) -> Sequence[InterpreterFacts]:
        """Runs the job; see the port.

        Raises:
            ConfigError: spark-submit is missing, or the job failed or got no cores within five minutes.
        """
        with job_folder() as folder:
            report_file = folder / "report.json"
            submission = package_report_submission(self._settings, self._connection, report_file)
            last_words = run_job(spark_submit_command(submission), {**os.environ, **submission.env_vars})
            report = read_report(report_file)
        if report is None:
            raise ConfigError(
                "the job that looks at the packages of Spark's executors failed",
                expected="an answer of every executor",
                found=last_words,
                next_command="see the logs of Spark's master and workers; docs/deploying.md, section Which packages",
            )
        return report


def _refusal(address: str) -> str:
    """Gives why an address refuses a TCP connection; empty when it accepts one."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS):
            return ""
    except ValueError:
        return "expected HOST:PORT"
    except OSError as error:
        return str(error)


def run_job(command: list[str], environment: dict[str, str]) -> str:
    """Runs spark-submit; gives how it ended, with the likely cause from its log. The whole log goes to DEBUG."""
    try:
        # The command is made of our own script and of validated settings; no shell is involved.
        done = subprocess.run(  # noqa: S603
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_JOB_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it was ended after {_JOB_SECONDS:.0f} s: the cluster may have no free cores or memory for it"
    _LOG.debug("%s", done.stdout)
    return f"exit code {done.returncode}{likely_cause(done.stdout)}"


def likely_cause(log: str) -> str:
    """Gives the error of the task that failed last, else the first that a job's log names."""
    cause = _NAMED_ERROR.search(log.rpartition(_FAILURE)[2])
    return f"; {cause[1]}" if cause else ""
