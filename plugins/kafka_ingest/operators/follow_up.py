"""Task *follow_up*: starts the next run at once where the limit cut this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException, DagRunTriggerException
from airflow.sdk import BaseOperator

from kafka_ingest.core.follow_up import follow_up_form, follow_up_run_id, why_nothing_follows
from kafka_ingest.core.settings import PipelineSettings
from kafka_ingest.operators import wiring
from kafka_ingest.operators.failure_policy import airflow_outcome
from kafka_ingest.operators.request import request_of

if TYPE_CHECKING:
    from airflow.sdk import Context


class FollowUpOperator(BaseOperator):
    """Triggers another run of this DAG when the batch of this run used up the limit; else it is skipped.

    The new run's id is made of the batch's id, and Airflow has one run of an id: trying or clearing this task again
    starts no second one. It waits in Airflow's queue until this run has ended (``max_active_runs=1``).

    Args:
        pipeline: The pipeline, as ``adapters.pipeline_files.load_pipeline`` gives it.
    """

    ui_color = "#e8e0f4"

    def __init__(self, *, pipeline: PipelineSettings, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> None:
        """Decides.

        Raises:
            DagRunTriggerException: To Airflow: trigger the run (as ``TriggerDagRunOperator`` does in Airflow 3).
            AirflowSkipException: Nothing follows.
        """
        settings, request = self.pipeline, request_of(context)
        with airflow_outcome(self.log):
            own = wiring.ledger(settings).plan_view(settings.pipeline, request, settings.batch.target).own
        form = follow_up_form(own, settings.plan.limit) if own else None
        if own is None or form is None:
            raise AirflowSkipException(f"No run follows: {why_nothing_follows(own, settings.plan.limit)}")
        raise DagRunTriggerException(
            trigger_dag_id=request.dag_id,
            dag_run_id=follow_up_run_id(own),
            conf=form,
            logical_date=None,
            reset_dag_run=False,
            skip_when_already_exists=True,
            wait_for_completion=False,
            allowed_states=[],
            failed_states=[],
            poke_interval=0,
            deferrable=False,
        )
