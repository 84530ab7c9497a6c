"""The Spark job of task *load_batch*: spark-submit through the hook of Airflow's Spark provider, and its log.

In client mode, on a local master or on a cluster (``spark/master.py``). Only a task that submits a job imports it.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException

from kafka_ingest.errors import ConfigError
from kafka_ingest.settings import PipelineSettings
from kafka_ingest.spark.submission import JobSubmission

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_ingest.operators.runs import OnApplication

#: Lines of spark-submit's output that go into an error when the job left no outcome.
_LAST_LINES = 20
#: A line of the job (``spark_jobs/load_job.py``) or of log4j's console: an optional date, time, level and message.
_LEVELLED = re.compile(r"(?:\d\d/\d\d/\d\d )?\d\d:\d\d:\d\d (?P<level>[A-Z]+) (?P<message>.*)")
_WARNINGS = frozenset({"WARN", "WARNING"})
_ERRORS = frozenset({"ERROR", "FATAL", "CRITICAL"})
#: Spark 4.2 and Java 17 say this at every start, and nothing follows from it: no reader should learn to pass warnings.
_SAID_AT_EVERY_START = ("NativeCodeLoader: ", "Using incubator modules: ")


#: What the driver says of its application, once (``spark_jobs/spark_runner.py``).
_STARTED = re.compile(r"Spark application (?P<id>[\w.-]+) has started(?:, its page: (?P<url>https?://\S+))?")


class SparkSubmitLog:
    """The logger of the provider's hook, which logs all that spark-submit prints as information.

    Lines get the level that they name, and lose their time: Airflow shows one. The command is folded away.

    Args:
        log: The hook's own logger.
        on_application: Told of the application once it has started.
    """

    def __init__(self, log: Any, on_application: OnApplication | None = None) -> None:
        self._log = log
        self._on_application = on_application

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def info(self, event: str, *args: Any) -> None:
        """Log a line of spark-submit, or a remark of the hook."""
        if args and "cmd" in event:
            self._fold(event.partition(":")[0], str(args[0]))
            return
        found = None if args else _LEVELLED.fullmatch(event)
        level, message = found.group("level", "message") if found else ("INFO", event)
        self._method(level, message)(message, *args)
        if self._on_application and (started := _STARTED.fullmatch(message)):
            self._on_application(started["id"], started["url"] or "")

    def _method(self, level: str, message: str) -> Any:
        if level in _ERRORS:
            return self._log.error
        is_warning = level in _WARNINGS and not message.startswith(_SAID_AT_EVERY_START)
        return self._log.warning if is_warning else self._log.info

    def _fold(self, title: str, command: str) -> None:
        self._log.info(f"::group::{title}")
        for part in command.replace(" --", "\n  --").splitlines():
            self._log.info("%s", part)
        self._log.info("::endgroup::")


class SparkJob:
    """One run of spark-submit. The provider's hook knows the Spark connection, and runs and ends the process.

    Args:
        submission: The job; its secrets go through files that its variables name.
        pipeline: The pipeline.
        on_application: Told of the application once it has started.
    """

    def __init__(self, submission: JobSubmission, pipeline: PipelineSettings, on_application: OnApplication) -> None:
        self._submission = submission
        self._pipeline = pipeline
        self._on_application = on_application
        self._hook: SparkSubmitHook | None = None

    def run(self, context: Context) -> str:
        """Run spark-submit to its end; return the tail of its output when it failed, else an empty text.

        Raises:
            ConfigError: It cannot be started.
        """
        try:
            self._hook = self._made_hook(context)
            self._hook.submit(self._submission.application)
        except FileNotFoundError as fault:
            raise ConfigError(
                "spark-submit cannot be started",
                expected="spark-submit on the PATH of the Airflow worker",
                found=str(fault),
                next_command="pip install pyspark in the worker's environment, or put Spark's bin folder on its PATH",
                pipeline=self._pipeline.pipeline,
            ) from None
        except (AirflowException, RuntimeError) as fault:  # RuntimeError: where providers go for failures of their own
            return "\n".join(str(fault).splitlines()[-_LAST_LINES:])
        return ""

    def kill(self) -> None:
        """End spark-submit, and with it the driver."""
        if self._hook:
            self._hook.on_kill()

    def _made_hook(self, context: Context) -> SparkSubmitHook:
        submission = self._submission
        try:
            hook = SparkSubmitHook(
                conn_id=self._pipeline.job.spark_connection,
                conf=_with_parent({**submission.conf}, context),
                py_files=submission.py_files,
                application_args=list(submission.application_args),
                name=submission.name,
                driver_memory=submission.driver_memory,
                executor_memory=submission.executor_memory,
                executor_cores=submission.executor_cores,
            )
        except (RuntimeError, NameError) as fault:  # only for k8s://, where the provider needs another one (6.3)
            raise ConfigError(
                "Airflow's Spark provider lacks a package that it needs for Kubernetes",
                expected="the provider cncf.kubernetes in the environment of the Airflow worker",
                found=str(fault),
                next_command="pip install 'apache-airflow-providers-apache-spark[cncf.kubernetes]'",
                pipeline=self._pipeline.pipeline,
            ) from None
        # The provider's hook looks for spark-submit on PATH: the one of this Python comes first.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        # The variables of the process that runs spark-submit (provider 6.3). Its own ``env_vars`` would stand on the
        # command line of YARN and Kubernetes, and on the latter would not be set at all.
        hook._env = {"PATH": path, **submission.env_vars}
        # Where ``LoggingMixin`` keeps its logger (``airflow/sdk/definitions/_internal/logging_mixin.py``, 3.3.2).
        hook._log = SparkSubmitLog(hook.log, self._on_application)
        return hook


def _with_parent(properties: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return Spark's properties, with those that tie a listener of OpenLineage to this task where Airflow says so.

    The transport's properties are never set: its key would stand on the command line, and the job reads and writes
    nothing that a listener of Spark could see.
    """
    if not conf.getboolean("openlineage", "spark_inject_parent_job_info", fallback=False):
        return properties
    # Only here: OpenLineage's client takes as long to import as the rest of the task.
    from airflow.providers.common.compat.openlineage.utils.spark import (
        inject_parent_job_information_into_spark_properties,
    )

    return inject_parent_job_information_into_spark_properties(properties, context)
