"""One pipeline becomes one DAG: plan_batch, load_batch, audit_batch, and what follows."""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from kafka_ingest.core.settings import PipelineSettings
from kafka_ingest.operators.follow_up import FollowUpOperator
from kafka_ingest.operators.intervals import timetable_of
from kafka_ingest.operators.pipeline_doc import pipeline_doc
from kafka_ingest.operators.run_params import run_params
from kafka_ingest.operators.task_group import add_batch_tasks, task_defaults

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

    One run is active at a time, because a queue is easier to look at; nothing depends on it.
    """
    schedule = pipeline.schedule
    with DAG(
        dag_id=dag_id_of(pipeline.pipeline),
        description=schedule.description or f"Load Kafka into {pipeline.batch.target}, exactly once",
        doc_md=pipeline_doc(pipeline),
        schedule=timetable_of(schedule),
        start_date=pendulum.parse(schedule.start_date, tz=schedule.timezone),  # type: ignore[arg-type]
        catchup=schedule.catchup,
        max_active_runs=1,
        tags=["kafka-ingest", *schedule.tags],
        params=run_params(schedule.timezone),
        default_args=task_defaults(schedule),
    ) as dag:
        audit = add_batch_tasks(pipeline, has_form=True)
        if schedule.follow_up:
            audit >> FollowUpOperator(task_id="follow_up", pipeline=pipeline)
    return dag
