"""The tasks of the DAGs, as parsing sees them.

What they do when they run is in ``runs``. Only ``execute`` imports it: every parse of a DAG file loads this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import DagRunTriggerException, DownstreamTasksSkipped
from airflow.sdk import Asset, BaseOperator
from airflow.sdk.bases.xcom import BaseXCom

from kafka_ingest.operators.task_links import BatchLink, SparkLink, TaskLinks, spark_history
from kafka_ingest.pipeline_files.files import asset_uri
from kafka_ingest.settings import BatchSettings, PipelineSettings

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from kafka_ingest.operators.runs import OnApplication
    from kafka_ingest.operators.spark_job import SparkJob
    from kafka_ingest.protocol.audit import AuditReport
    from kafka_ingest.spark.submission import JobSubmission


class PlanBatchOperator(BaseOperator):
    """Plans the batch of this run: freezes its offset ranges in the ledger. Run again, it gives the same batch.

    Returns:
        ``report.batch_summary``: the batch's id, ranges and state, JSON-safe.

    Args:
        pipeline: The pipeline, as ``load_pipeline`` returns it.
        has_form: Whether the run's conf is the form of ``forms.run``; else it is not looked at.
    """

    ui_color = "#dbe9f6"
    operator_extra_links = (BatchLink(),)

    def __init__(self, *, pipeline: PipelineSettings, has_form: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.has_form = has_form
        self.links: TaskLinks | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan.

        Raises:
            AirflowException: As ``operators/context.py`` says.
        """
        from kafka_ingest.operators import runs

        links = self.links = TaskLinks(context["ti"].xcom_push, self.log)
        return runs.plan(self.pipeline, context, self.log, has_form=self.has_form, links=links)


# ----------
# Task *load_batch*: loads the batch, then asks the ledger what came of it.


class LoadBatchOperator(BaseOperator):
    """Loads the batch of this run with Spark, or, where the pipeline says so, a small one in its own process.

    It begins with the plan step, so a plan that was superseded in the meantime is no special case. Without anything to
    read, or when the batch is committed already, it loads nothing and succeeds. The ledger says whether a load has
    succeeded: neither the job's exit code nor its log does.

    Spark is driven through the hook of Airflow's Spark provider (``spark_job.py``), which is imported only where a job
    is submitted: the provider's operator would be imported by every task and every parse.

    Returns:
        ``report.load_summary`` of the committed batch.

    Args:
        pipeline: The pipeline, as ``load_pipeline`` returns it.
        has_form: Whether the run's conf is the form of ``forms.run``; else it is not looked at.
    """

    ui_color = "#fbe3d0"
    operator_extra_links = (BatchLink(), SparkLink())

    def __init__(self, *, pipeline: PipelineSettings, has_form: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.has_form = has_form
        self.spark_history = spark_history()
        self.links: TaskLinks | None = None
        self._job: SparkJob | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Load.

        Raises:
            AirflowException: As ``operators/context.py`` says.
        """
        from kafka_ingest.operators import runs

        def submit(submission: JobSubmission, on_application: OnApplication) -> str:
            from kafka_ingest.operators.spark_job import SparkJob

            self._job = SparkJob(submission, self.pipeline, on_application)
            return self._job.run(context)

        links = self.links = TaskLinks(context["ti"].xcom_push, self.log, history=self.spark_history)
        return runs.load(self.pipeline, context, self.log, has_form=self.has_form, submit=submit, links=links)

    def on_kill(self) -> None:
        """Stop Spark; Airflow calls it when the task is marked failed, and ends this process."""
        if self._job:
            self._job.kill()

    def get_openlineage_facets_on_complete(self, _: object) -> OperatorLineage[Any, Any]:
        """Return what was read and written; Airflow's OpenLineage provider asks, also where the task has failed."""
        from kafka_ingest.operators.lineage import load_lineage

        return load_lineage(self.pipeline, self.links.batch if self.links else None)


# ----------
# Task *audit_batch*: checks the invariants and announces what was loaded as an asset event.
#
# Airflow stores the event together with the task's success. So the ledger learns that a batch is announced only then,
# in the callback of a success: an audit that dies before leaves its batches to the audit of the next run.


def target_asset(settings: BatchSettings) -> Asset:
    """Return the asset of a pipeline's target table: known while DAGs are parsed, without any connection.

    Name ``<connection>.<schema>.<table>``, for ``schedule=Asset.ref(name="warehouse.shop.orders")`` in another DAG. The
    connection id is part of it because Airflow wants names to be unique, and two databases may have a table of one
    name.
    """
    target = settings.target
    return Asset(
        name=f"{settings.target_connection}.{target.schema}.{target.table}",
        uri=asset_uri(settings.target_connection, target.schema, target.table),
        group="kafka-ingest",
    )


class AuditBatchOperator(BaseOperator):
    """Audits the batch of this run and announces it.

    Airflow sends asset events of successful tasks only. So this task succeeds when partitions were left out too, and
    ``ReportLeftOutOperator`` after it makes the run end red.

    Returns:
        ``report.batch_summary`` of the audited batch.

    Args:
        pipeline: The pipeline, as ``load_pipeline`` returns it.
    """

    ui_color = "#dcefdc"
    operator_extra_links = (BatchLink(),)

    def __init__(self, *, pipeline: PipelineSettings, **kwargs: Any) -> None:
        self.asset = target_asset(pipeline.batch)
        callbacks = kwargs.pop("on_success_callback", None) or []
        callbacks = [*callbacks] if isinstance(callbacks, Sequence) else [callbacks]
        outlets = [self.asset, *kwargs.pop("outlets", [])]
        super().__init__(outlets=outlets, on_success_callback=[_announced, *callbacks], **kwargs)
        self.pipeline = pipeline
        self.links: TaskLinks | None = None
        self._report: AuditReport | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Audit, and hand Airflow the event; a run with nothing to tell of sends none.

        Raises:
            DownstreamTasksSkipped: To Airflow: the audit has succeeded, and no process need start to see that no run
                follows.
            AirflowException: As ``operators/context.py`` says.
        """
        from kafka_ingest.operators import runs

        def announce(report: AuditReport) -> None:
            self._announce(report, context)

        links = self.links = TaskLinks(context["ti"].xcom_push, self.log)
        summary, why_none = runs.audit(self.pipeline, context, self.log, announce=announce, links=links)
        following = self.downstream_list if self.has_dag() else ()  # type: ignore[no-untyped-call]
        needless = [task.task_id for task in following if isinstance(task, FollowUpOperator)]
        if not why_none or not needless:
            return summary
        self.log.info("No run follows: %s", why_none)
        if self.do_xcom_push:
            context["ti"].xcom_push(BaseXCom.XCOM_RETURN_KEY, summary)
        raise DownstreamTasksSkipped(tasks=needless)  # type: ignore[no-untyped-call]

    def record_announcement(self, context: Context) -> None:
        """Store that the batches are announced, and count them; after the success of :meth:`execute` only.

        Airflow calls it also where its server refused the success, as of a task that somebody marked failed meanwhile:
        there is no event then. So the server is asked.
        """
        from kafka_ingest.operators import runs

        if self._report is None or not runs.has_succeeded(context):
            return
        runs.record_announced(self.pipeline, self._report)

    def _announce(self, report: AuditReport, context: Context) -> None:
        from kafka_ingest.operators.runs import event_extra
        from kafka_ingest.report import announced_text

        self._report = report
        if report.has_news:
            context["outlet_events"][self.asset].extra.update(event_extra(report))
            self.log.info("%s", announced_text(self.asset.name, report.announced))
            return
        # Airflow sends an event for every outlet that this copy of the task has when it succeeds (3.3.2,
        # _handle_current_task_success in airflow/sdk/execution_time/task_runner.py); the DAG's keeps it.
        self.outlets = [outlet for outlet in self.outlets if outlet != self.asset]
        self.log.info("Every invariant holds. Nothing was loaded: no asset event is sent")


def _announced(context: Context) -> None:
    """Run as callback of a success: the task in the context is the copy that was executed, not the one in the DAG."""
    task = context["task"]
    if isinstance(task, AuditBatchOperator):
        task.record_announcement(context)


# ----------
# Tasks *follow_up* and *report_left_out*.


#: Runs can be triggered with a note from Airflow 3.2 on; a task can write none to its own run (3.3.2, Task SDK 1.3.2).
_HAS_NOTES = "note" in signature(DagRunTriggerException).parameters


class FollowUpOperator(BaseOperator):
    """Triggers another run of this DAG when the batch of this run used up the limit; else it is skipped.

    The audit before it skips it, too, without starting it. It decides again where somebody clears it alone.

    The new run's id is made of the batch's id, and Airflow has one run of an id: trying or clearing this task again
    starts no second one. It waits in Airflow's queue until this run has ended (``max_active_runs=1``).

    Args:
        pipeline: The pipeline, as ``load_pipeline`` returns it.
    """

    ui_color = "#e8e0f4"

    def __init__(self, *, pipeline: PipelineSettings, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> None:
        """Decide.

        Raises:
            DagRunTriggerException: To Airflow: trigger the run (as ``TriggerDagRunOperator`` does in Airflow 3).
            AirflowSkipException: Nothing follows.
        """
        from kafka_ingest.operators import runs

        run_id, form = runs.follow_up(self.pipeline, context, self.log)
        limit = self.pipeline.plan.limit.total_offsets
        note = f"Goes on where run {context['ti'].run_id} stopped: it had used up its limit of {limit:,} offsets."
        raise DagRunTriggerException(
            trigger_dag_id=context["ti"].dag_id,
            dag_run_id=run_id,
            conf=form,
            logical_date=None,
            reset_dag_run=False,
            skip_when_already_exists=True,
            wait_for_completion=False,
            allowed_states=[],
            failed_states=[],
            poke_interval=0,
            deferrable=False,
            **({"note": note} if _HAS_NOTES else {}),
        )


class ReportLeftOutOperator(BaseOperator):
    """Fails when the batch of this run left partitions out (``on_partition_fault: leave_out``).

    A task of its own, because Airflow drops the asset events of a task that fails.

    Args:
        pipeline: The pipeline, as ``load_pipeline`` returns it.
    """

    ui_color = "#f6d5d5"

    def __init__(self, *, pipeline: PipelineSettings, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> None:
        """Look at the batch.

        Raises:
            AirflowFailException: Partitions were left out; each is named with its fault.
        """
        from kafka_ingest.operators import runs

        runs.report_left_out(self.pipeline, context, self.log)


# ----------
# Task *keep_house*: tidies one target database.


class HousekeepingOperator(BaseOperator):
    """Tidies the database of one connection. What is in use is left, named in the log, and done by a later run.

    The run's parameters ``older_than_days`` and ``dry_run`` say what to do.

    Returns:
        How many chores were done, would be done, and were left.

    Args:
        connection: Airflow connection of a target database.
    """

    ui_color = "#ece5d8"

    def __init__(self, *, connection: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.connection = connection

    def execute(self, context: Context) -> dict[str, int]:
        """Tidy.

        Raises:
            AirflowException: As ``operators/context.py`` says.
        """
        from kafka_ingest.operators import runs

        return runs.keep_house(self.connection, context["params"], self.log)
