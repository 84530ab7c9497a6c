"""Task *audit_batch*: checks the invariants and announces what was loaded as an asset event."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from kafka_ingest.core.errors import BatchNotCommitted
from kafka_ingest.core.measurements import batch_measurements, lag_measurements, valid_through_measurements
from kafka_ingest.core.settings import PipelineSettings
from kafka_ingest.core.summary import batch_summary
from kafka_ingest.operators import wiring
from kafka_ingest.operators.assets import event_extra, target_asset
from kafka_ingest.operators.failure_policy import airflow_outcome
from kafka_ingest.operators.metrics import send, timed_step, view_to_tell
from kafka_ingest.operators.request import request_of
from kafka_ingest.steps.audit_batch import AuditReport, audit_batch
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
        super().__init__(outlets=[self.asset, *kwargs.pop("outlets", [])], **kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, Any]:
        """Audits and announces.

        Raises:
            AirflowException: As ``operators/failure_policy.py`` says.
        """
        with airflow_outcome(self.log), timed_step(self.pipeline.pipeline, "audit"):
            report = self._audited(context)
            extra = event_extra(report)
            context["outlet_events"][self.asset].extra.update(extra)
            everything = f"python -m kafka_ingest audit {self.pipeline.pipeline} --all"
            self.log.info("Every invariant holds; rows of the newest batch were counted, of all: %s", everything)
            self.log.info("Announced as %s: %s", self.asset.name, extra)
            self._tell_others(report)
            return batch_summary(report.batch)

    def _tell_others(self, report: AuditReport) -> None:
        """Sends metrics and copies the position to the consumer group; a failure is a warning here."""
        settings, batch = self.pipeline, report.batch
        send(batch_measurements(report.announced))
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
