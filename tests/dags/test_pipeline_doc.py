"""What Airflow's pages of a pipeline's DAG and of its tasks tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_ingest.operators.administration import administration_dag
from kafka_ingest.operators.dags import housekeeping_dag, pipeline_dag, pipeline_doc
from kafka_ingest.pipeline_files.files import PipelineCatalog
from kafka_ingest.settings import DeadLetterLimits, PartitionFaultPolicy
from tests.builders import batch_settings, pipeline_settings


def test_limits_of_dead_letters_stand_there_with_the_floor_under_which_the_share_is_not_looked_at() -> None:
    limits = DeadLetterLimits(max_count=5_000, max_ratio=0.125, ratio_from_count=70, max_consecutive=300)
    page = pipeline_doc(pipeline_settings(batch=replace(batch_settings(), dead_letters=limits)))
    assert (
        "| a batch stops at more than | 5,000 dead letters, or 12.5% of its records (not looked at up to 70 dead "
        "letters), or 300 dead letters in a row in one partition |"
    ) in page


def test_a_green_run_is_said_to_be_able_to_have_dead_letters() -> None:
    page = pipeline_doc(pipeline_settings())
    assert "becomes a dead letter" in page
    assert "the run stays green" in page


def test_every_task_says_what_red_means_and_what_to_press() -> None:
    settings = pipeline_settings()
    plan = replace(settings.plan, on_partition_fault=PartitionFaultPolicy.LEAVE_OUT)
    tasks = pipeline_dag(replace(settings, plan=plan)).tasks
    catalog = PipelineCatalog((settings,), ())
    tasks += administration_dag(catalog, Path()).tasks + housekeeping_dag(catalog).tasks
    names = "plan_batch load_batch audit_batch report_left_out follow_up administer keep_house"
    assert {task.task_id for task in tasks} == set(names.split())
    for task in tasks:
        told = task.doc_md or ""
        assert [word for word in ("**Red**", "**Press**") if word not in told] == [], task.task_id
        assert "{" not in told


def test_dag_and_tasks_lead_to_the_pipelines_own_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://host.example/airflow")
    dag = pipeline_dag(pipeline_settings())
    pages = [dag.doc_md or "", *(task.doc_md or "" for task in dag.tasks)]
    assert [page for page in pages if "(/airflow/kafka-ingest/pipelines/orders)" not in page] == []
