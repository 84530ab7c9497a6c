"""Task *load_batch*: submits the Spark job of the batch, then asks the ledger what came of it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException

from kafka_ingest.adapters.job_folder import job_folder
from kafka_ingest.adapters.job_outcome import loaded_batch, read_phases, require_unlocked
from kafka_ingest.core.batch import Batch, BatchState
from kafka_ingest.core.dead_letters import DeadLetterGroup
from kafka_ingest.core.errors import ConfigError, IngestError
from kafka_ingest.core.load_phases import LoadPhases
from kafka_ingest.core.measurements import phase_measurements
from kafka_ingest.core.ports import Ledger
from kafka_ingest.core.settings import PipelineSettings
from kafka_ingest.core.summary import committed_text, dead_letters_text, load_summary
from kafka_ingest.operators import wiring
from kafka_ingest.operators.failure_policy import TaskLog, airflow_outcome
from kafka_ingest.operators.metrics import send, timed_step
from kafka_ingest.operators.patience import patience
from kafka_ingest.operators.plan_step import run_plan_step
from kafka_ingest.steps.load_batch import hold_given_back

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from kafka_ingest.adapters.job_submission import JobSubmission

#: Lines of spark-submit's output that go into an error when the job left no outcome.
_LAST_LINES = 20
#: A line of the job (``spark_jobs/load_job.py``) or of log4j's console: an optional date, time, level and message.
_LEVELLED = re.compile(r"(?:\d\d/\d\d/\d\d )?\d\d:\d\d:\d\d (?P<level>[A-Z]+) (?P<message>.*)")
_WARNINGS = frozenset({"WARN", "WARNING"})
_ERRORS = frozenset({"ERROR", "FATAL", "CRITICAL"})
#: Spark 4.2 and Java 17 say this at every start, and nothing follows from it: no reader should learn to pass warnings.
_SAID_AT_EVERY_START = ("NativeCodeLoader: ", "Using incubator modules: ")


class SparkSubmitLog:
    """The logger of the provider's hook, which logs all that spark-submit prints as information.

    Lines get the level that they name, and lose their time: Airflow shows one. The command is folded away.

    Args:
        log: The hook's own logger.
    """

    def __init__(self, log: Any) -> None:
        self._log = log

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


class LoadBatchOperator(SparkSubmitOperator):
    """Loads the batch of this run with Spark, in client mode on ``local[...]`` or ``spark://``.

    It begins with the plan step, so a plan that was superseded in the meantime is no special case. Without anything to
    read, or when the batch is committed already, it starts no Spark and succeeds. Whether a job has succeeded is what
    the ledger says: neither its exit code nor its log.

    Application, arguments, configuration and environment are set while the task runs. They are no template fields, so
    that nothing of them can be rendered, and secrets go through the environment alone.

    Returns:
        ``core.summary.load_summary`` of the committed batch.

    Args:
        pipeline: The pipeline, as ``adapters.pipeline_files.load_pipeline`` gives it.
        has_form: Whether the run's conf is the form of ``core.run_form``; else it is not looked at.
    """

    template_fields: Sequence[str] = ()
    ui_color = "#fbe3d0"

    def __init__(self, *, pipeline: PipelineSettings, has_form: bool = False, **kwargs: Any) -> None:
        job = pipeline.job
        super().__init__(
            conn_id=job.spark_connection,
            driver_memory=job.driver_memory,
            executor_memory=job.executor_memory,
            executor_cores=job.executor_cores,
            **kwargs,
        )
        self.pipeline = pipeline
        self.has_form = has_form

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Loads.

        Raises:
            AirflowException: As ``operators/failure_policy.py`` says.
        """
        with airflow_outcome(self.log):
            phases: LoadPhases | None = None
            batch = run_plan_step(self.pipeline, context, self.log, has_form=self.has_form)
            if batch.state is not BatchState.COMMITTED:
                given_back = hold_given_back(batch, wiring.ledger(self.pipeline))
                may_wait = patience(context, self.pipeline.schedule.busy_timeout_seconds)
                with timed_step(self.pipeline.pipeline, "load"), may_wait, given_back:
                    batch, phases = self._load(batch, context)
            _tell_result(batch, wiring.ledger(self.pipeline), self.log)
            if phases:
                send(phase_measurements(phases, batch.pipeline))
            return load_summary(batch, phases)

    def _load(self, batch: Batch, context: Context) -> tuple[Batch, LoadPhases | None]:
        with job_folder() as folder:
            outcome_file = folder / "outcome.json"
            require_unlocked(batch, wiring.ledger(self.pipeline))
            self._prepare(wiring.submission(self.pipeline, batch, outcome_file))
            try:
                last_words = self._submit(context)
            finally:
                self.env_vars = None
            committed = loaded_batch(batch, wiring.ledger(self.pipeline), outcome_file, last_words or "exit code 0")
            return committed, read_phases(outcome_file)

    def _prepare(self, submission: JobSubmission) -> None:
        self.application = submission.application
        self.py_files = submission.py_files
        self.application_args = list(submission.application_args)
        self.conf = dict(submission.conf)
        # The provider's hook looks for spark-submit on PATH: the one of this Python comes first.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        self.env_vars = {"PATH": path, **submission.env_vars}
        self.name = submission.name
        # The provider keeps a hook made of all this: executed twice, an operator would submit the first job again.
        self._hook = None

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        # Where ``LoggingMixin`` keeps its logger (``airflow/sdk/definitions/_internal/logging_mixin.py``, 3.3.2).
        hook._log = SparkSubmitLog(hook.log)
        return hook

    def _submit(self, context: Context) -> str:
        """Runs spark-submit to its end; gives its last words when it failed, else an empty text."""
        try:
            super().execute(context)
        except FileNotFoundError as fault:
            raise ConfigError(
                "spark-submit cannot be started",
                expected="spark-submit on the PATH of the Airflow worker",
                found=str(fault),
                next_command="pip install pyspark in the worker's environment, or put Spark's bin folder on its PATH",
                pipeline=self.pipeline.pipeline,
            ) from None
        except (AirflowException, RuntimeError) as fault:  # RuntimeError: where providers go for failures of their own
            return "\n".join(str(fault).splitlines()[-_LAST_LINES:])
        return ""


def _tell_result(batch: Batch, ledger: Ledger, log: TaskLog) -> None:
    """Log what the batch has written; dead letters are a warning, for the run is green all the same."""
    if not batch.ranges:
        return
    log.info("%s", committed_text(batch))
    if batch.counts and batch.counts.dead_letters:
        log.warning("%s", dead_letters_text(batch, _dead_letter_groups(batch, ledger)))


def _dead_letter_groups(batch: Batch, ledger: Ledger) -> Sequence[DeadLetterGroup]:
    try:
        return ledger.dead_letter_groups(batch.batch_id)
    except IngestError:
        return ()  # The batch is committed: its task must not fail because nobody can say why records did not fit.
