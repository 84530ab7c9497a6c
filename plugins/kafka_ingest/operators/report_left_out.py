"""Task *report_left_out*: makes a run end red whose batch left partitions out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from kafka_ingest.core.errors import PartitionsFaulty
from kafka_ingest.core.settings import PipelineSettings
from kafka_ingest.operators import wiring
from kafka_ingest.operators.failure_policy import airflow_outcome
from kafka_ingest.operators.request import request_of

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReportLeftOutOperator(BaseOperator):
    """Fails when the batch of this run left partitions out (``on_partition_fault: leave_out``).

    A task of its own, because Airflow drops the asset events of a task that fails.

    Args:
        pipeline: The pipeline, as ``adapters.pipeline_files.load_pipeline`` gives it.
    """

    ui_color = "#f6d5d5"

    def __init__(self, *, pipeline: PipelineSettings, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> None:
        """Looks at the batch.

        Raises:
            AirflowFailException: Partitions were left out; each is named with its fault.
        """
        with airflow_outcome(self.log):
            settings, request = self.pipeline, request_of(context)
            own = wiring.ledger(settings).plan_view(settings.pipeline, request, settings.batch.target).own
            if own and own.left_out:
                raise PartitionsFaulty(
                    "partitions were left out; the others are loaded and announced",
                    expected="every partition of the topics read",
                    found="\n".join(own.left_out),
                    next_command=f"python -m kafka_ingest plan {settings.pipeline} --dry-run",
                    pipeline=settings.pipeline,
                    batch_id=own.batch_id,
                )
            self.log.info("No partition was left out")
