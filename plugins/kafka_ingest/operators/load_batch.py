"""Task *load_batch*: submits the Spark job of the batch, then asks the ledger what came of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException

from kafka_ingest.adapters.job_folder import job_folder
from kafka_ingest.adapters.job_outcome import loaded_batch, read_phases
from kafka_ingest.core.batch import Batch, BatchState
from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.load_phases import LoadPhases
from kafka_ingest.core.measurements import phase_measurements
from kafka_ingest.core.settings import PipelineSettings
from kafka_ingest.core.summary import load_summary
from kafka_ingest.operators import wiring
from kafka_ingest.operators.failure_policy import airflow_outcome
from kafka_ingest.operators.metrics import send, timed_step
from kafka_ingest.operators.plan_step import run_plan_step

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_ingest.adapters.job_submission import JobSubmission

#: Lines of spark-submit's output that go into an error when the job left no outcome.
_LAST_LINES = 20


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
                with timed_step(self.pipeline.pipeline, "load"):
                    batch, phases = self._load(batch, context)
            if phases:
                send(phase_measurements(phases, batch.pipeline))
            return load_summary(batch, phases)

    def _load(self, batch: Batch, context: Context) -> tuple[Batch, LoadPhases | None]:
        with job_folder() as folder:
            outcome_file = folder / "outcome.json"
            self._prepare(wiring.submission(self.pipeline, batch, outcome_file))
            try:
                last_words = self._submit(context)
            finally:
                self.env_vars = None
            committed = loaded_batch(batch, wiring.ledger(self.pipeline), outcome_file, last_words or "exit code 0")
            phases = read_phases(outcome_file)
        self.log.info("Batch %s is committed: %s", committed.batch_id, committed.counts)
        return committed, phases

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
