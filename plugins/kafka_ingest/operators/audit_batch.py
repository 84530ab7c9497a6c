"""Task *audit_batch*: checks the invariants and announces what was loaded as an asset event.

Airflow stores the event together with the task's success. So the ledger learns that a batch is announced only then, in
the callback of a success: an audit that dies before leaves its batches to the audit of the next run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from kafka_ingest.core.errors import BatchNotCommitted
from kafka_ingest.core.measurements import batch_measurements, lag_measurements, valid_through_measurements
from kafka_ingest.core.settings import PipelineSettings
from kafka_ingest.core.summary import announced_text, batch_summary
from kafka_ingest.operators import wiring
from kafka_ingest.operators.assets import event_extra, target_asset
from kafka_ingest.operators.failure_policy import airflow_outcome
from kafka_ingest.operators.metrics import send, timed_step, view_to_tell
from kafka_ingest.operators.request import request_of
from kafka_ingest.steps.audit_batch import AuditReport, audit_batch, record_announcement
from kafka_ingest.steps.mirror_group import mirror_group

if TYPE_CHECKING:
    from airflow.sdk import Context


class AuditBatchOperator(BaseOperator):
    """Audits the batch of this run and announces it.

    Airflow sends asset events of successful tasks only. So this task succeeds when partitions were left out too, and
    ``ReportLeftOutOperator`` after it makes the run end red.

    Returns:
        ``core.summary.batch_summary`` of the audited batch.

    Args:
        pipeline: The pipeline, as ``adapters.pipeline_files.load_pipeline`` gives it.
    """

    ui_color = "#dcefdc"

    def __init__(self, *, pipeline: PipelineSettings, **kwargs: Any) -> None:
        self.asset = target_asset(pipeline.batch)
        callbacks = kwargs.pop("on_success_callback", None) or []
        callbacks = [*callbacks] if isinstance(callbacks, Sequence) else [callbacks]
        outlets = [self.asset, *kwargs.pop("outlets", [])]
        super().__init__(outlets=outlets, on_success_callback=[_announced, *callbacks], **kwargs)
        self.pipeline = pipeline
        self._report: AuditReport | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Audits, and hands Airflow the event; a run with nothing to tell of sends none.

        Raises:
            AirflowException: As ``operators/failure_policy.py`` says.
        """
        with airflow_outcome(self.log), timed_step(self.pipeline.pipeline, "audit"):
            report = self._report = self._audited(context)
            if report.has_news:
                context["outlet_events"][self.asset].extra.update(event_extra(report))
                self.log.info("%s", announced_text(self.asset.name, report.announced))
            else:
                # Airflow sends an event for every outlet that this copy of the task has when it succeeds (3.3.2,
                # _handle_current_task_success in airflow/sdk/execution_time/task_runner.py); the DAG's keeps it.
                self.outlets = [outlet for outlet in self.outlets if outlet != self.asset]
                self.log.info("Every invariant holds. Nothing was loaded: no asset event is sent")
            everything = f"python -m kafka_ingest audit {self.pipeline.pipeline} --all"
            self.log.info("Rows of the newest batch were counted; those of all batches: %s", everything)
            self._tell_others(report)
            return batch_summary(report.batch)

    def record_announcement(self, context: Context) -> None:
        """Stores that the batches are announced, and counts them; after the success of :meth:`execute` only.

        Airflow calls it also where its server refused the success, as of a task that somebody marked failed meanwhile:
        there is no event then. So the server is asked.
        """
        if self._report is None or not _has_succeeded(context):
            return
        record_announcement(self._report, wiring.ledger(self.pipeline))
        send(batch_measurements(self._report.announced))

    def _tell_others(self, report: AuditReport) -> None:
        """Sends metrics and copies the position to the consumer group; a failure is a warning here."""
        settings, batch = self.pipeline, report.batch
        send(valid_through_measurements(batch, datetime.now(UTC)))
        if view := view_to_tell(settings, batch.request):
            send(lag_measurements(settings, view))
        mirror_group(settings, batch.request, wiring.ledger(settings), lambda: wiring.group_mirror(settings))

    def _audited(self, context: Context) -> AuditReport:
        request, settings = request_of(context), self.pipeline
        ledger = wiring.ledger(settings)
        own = ledger.plan_view(settings.pipeline, request, settings.batch.target).own
        if own is None:
            raise BatchNotCommitted(
                "this run has no batch to audit",
                expected="a batch planned by plan_batch or load_batch of the same run and task group",
                next_command="clear load_batch of this run (Airflow: task load_batch, Clear)",
                pipeline=settings.pipeline,
            )
        return audit_batch(own.batch_id, own.request, ledger)


def _announced(context: Context) -> None:
    """Callback of a success: the task in the context is the copy that was executed, unlike the one in the DAG."""
    task = context["task"]
    if isinstance(task, AuditBatchOperator):
        task.record_announcement(context)


def _has_succeeded(context: Context) -> bool:
    ti = context["ti"]
    states = ti.get_task_states(
        dag_id=ti.dag_id,
        task_ids=[ti.task_id],
        run_ids=[ti.run_id],
        map_index=None if ti.map_index is None or ti.map_index < 0 else ti.map_index,
    )
    return "success" in states.get(ti.run_id, {}).values()
