"""Task *plan_batch*: freezes the offset ranges of this run in the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from kafka_ingest.core.measurements import headroom_measurements, lag_measurements
from kafka_ingest.core.settings import PipelineSettings
from kafka_ingest.core.summary import batch_summary
from kafka_ingest.operators.failure_policy import airflow_outcome
from kafka_ingest.operators.metrics import send, timed_step, view_to_tell
from kafka_ingest.operators.plan_step import run_plan_step

if TYPE_CHECKING:
    from airflow.sdk import Context


class PlanBatchOperator(BaseOperator):
    """Plans the batch of this run; run again, it gives the same batch.

    Returns:
        ``core.summary.batch_summary``: the batch's id, ranges and state, JSON-safe.

    Args:
        pipeline: The pipeline, as ``adapters.pipeline_files.load_pipeline`` gives it.
        has_form: Whether the run's conf is the form of ``core.run_form``; else it is not looked at.
    """

    ui_color = "#dbe9f6"

    def __init__(self, *, pipeline: PipelineSettings, has_form: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.has_form = has_form

    def execute(self, context: Context) -> dict[str, Any]:
        """Plans.

        Raises:
            AirflowException: As ``operators/failure_policy.py`` says.
        """
        with airflow_outcome(self.log), timed_step(self.pipeline.pipeline, "plan"):
            batch = run_plan_step(self.pipeline, context, self.log, has_form=self.has_form)
            if view := view_to_tell(self.pipeline, batch.request):
                send(lag_measurements(self.pipeline, view))
                send(headroom_measurements(self.pipeline, view))
            return batch_summary(batch)
