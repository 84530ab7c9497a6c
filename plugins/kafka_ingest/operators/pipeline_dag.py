"""One pipeline becomes one DAG: plan_batch, load_batch, audit_batch."""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from kafka_ingest.core.settings import PartitionFaultPolicy, PipelineSettings, ScheduleSettings
from kafka_ingest.operators.audit_batch import AuditBatchOperator
from kafka_ingest.operators.load_batch import LoadBatchOperator
from kafka_ingest.operators.pipeline_doc import pipeline_doc
from kafka_ingest.operators.plan_batch import PlanBatchOperator
from kafka_ingest.operators.report_left_out import ReportLeftOutOperator

#: DAG ids are ``kafka_to_postgres__<pipeline>``: they sort together and meet no DAG of anybody else.
DAG_ID_PREFIX = "kafka_to_postgres__"


def dag_id_of(pipeline: str) -> str:
    """Gives the DAG id of a pipeline."""
    return DAG_ID_PREFIX + pipeline


def pipeline_of(dag_id: str) -> str:
    """Gives the pipeline of a DAG id."""
    return dag_id.removeprefix(DAG_ID_PREFIX)


def pipeline_dag(pipeline: PipelineSettings) -> DAG:
    """Builds the DAG of a pipeline. No connection is looked up and nothing is asked over the network.

    ``catchup`` is off and one run is active at a time: a run reads up to the end of the log, so a missed one has
    nothing of its own to read.
    """
    schedule = pipeline.schedule
    with DAG(
        dag_id=dag_id_of(pipeline.pipeline),
        description=schedule.description or f"Load Kafka into {pipeline.batch.target}, exactly once",
        doc_md=pipeline_doc(pipeline),
        schedule=_timetable(schedule),
        start_date=pendulum.parse(schedule.start_date, tz=schedule.timezone),  # type: ignore[arg-type]
        catchup=False,
        max_active_runs=1,
        tags=["kafka-ingest", *schedule.tags],
        default_args={
            "owner": schedule.owner,
            "retries": schedule.retries,
            "retry_delay": timedelta(seconds=schedule.retry_delay_seconds),
            "execution_timeout": timedelta(seconds=schedule.execution_timeout_seconds),
        },
    ) as dag:
        plan = PlanBatchOperator(task_id="plan_batch", pipeline=pipeline)
        load = LoadBatchOperator(task_id="load_batch", pipeline=pipeline)
        audit = AuditBatchOperator(task_id="audit_batch", pipeline=pipeline)
        plan >> load >> audit
        if pipeline.plan.on_partition_fault is PartitionFaultPolicy.LEAVE_OUT:
            audit >> ReportLeftOutOperator(task_id="report_left_out", pipeline=pipeline)
    return dag


def _timetable(schedule: ScheduleSettings) -> CronDataIntervalTimetable | None:
    # With intervals, because a run for an hour should say which hour, though what it reads is decided by offsets.
    return CronDataIntervalTimetable(schedule.schedule, timezone=schedule.timezone) if schedule.schedule else None
