"""Plan, load and audit as tasks: for the DAG of a pipeline file, and as a group inside anybody's DAG."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import TaskGroup

from kafka_ingest.core.schedule_settings import ScheduleSettings
from kafka_ingest.core.settings import PartitionFaultPolicy, PipelineSettings
from kafka_ingest.operators.audit_batch import AuditBatchOperator
from kafka_ingest.operators.load_batch import LoadBatchOperator
from kafka_ingest.operators.plan_batch import PlanBatchOperator
from kafka_ingest.operators.report_left_out import ReportLeftOutOperator


def kafka_to_postgres(pipeline: PipelineSettings, *, group_id: str = "kafka_to_postgres") -> TaskGroup:
    """Puts plan_batch, load_batch and audit_batch into the DAG that is being built, as a task group.

    The guarantees are those of a pipeline's own DAG: a run of the DAG has one batch for each group (and map index), and
    retries and clears ask for the same one. The group's tasks are owned, retried and stopped as the pipeline file says.
    The run's conf belongs to the DAG and is not looked at, and no follow-up run is started.

    Args:
        pipeline: The pipeline, as ``adapters.pipeline_files.load_pipeline`` gives it.
        group_id: Prefix of the task ids; part of the request. A renamed group asks for batches of its own.
    """
    # Its converter hides the type of default_args from mypy (attrs.field in airflow/sdk/definitions/taskgroup.py).
    with TaskGroup(group_id, default_args=task_defaults(pipeline.schedule)) as group:  # type: ignore[arg-type]
        add_batch_tasks(pipeline, has_form=False)
    return group


def task_defaults(schedule: ScheduleSettings) -> dict[str, Any]:
    """Gives what the pipeline file says about each task, as Airflow's ``default_args``."""
    return {
        "owner": schedule.owner,
        "retries": schedule.retries,
        "retry_delay": timedelta(seconds=schedule.retry_delay_seconds),
        "execution_timeout": timedelta(seconds=schedule.execution_timeout_seconds),
    }


def add_batch_tasks(pipeline: PipelineSettings, *, has_form: bool) -> AuditBatchOperator:
    """Adds the tasks of one batch to the DAG or group that is being built; gives the one that announces the batch.

    Args:
        pipeline: The pipeline.
        has_form: Whether the run's conf is the form of ``core.run_form``.
    """
    plan = PlanBatchOperator(task_id="plan_batch", pipeline=pipeline, has_form=has_form)
    load = LoadBatchOperator(task_id="load_batch", pipeline=pipeline, has_form=has_form)
    audit = AuditBatchOperator(task_id="audit_batch", pipeline=pipeline)
    plan >> load >> audit
    if pipeline.plan.on_partition_fault is PartitionFaultPolicy.LEAVE_OUT:
        audit >> ReportLeftOutOperator(task_id="report_left_out", pipeline=pipeline)
    return audit
