"""The task group inside a DAG of somebody else, and the example that the docs show."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta

import pendulum
import pytest
from airflow.sdk import DAG, task, task_group

import kafka_ingest
from kafka_ingest import kafka_to_postgres, load_pipeline
from kafka_ingest.integrity import POLICIES, Policy, Report, load, violations
from kafka_ingest.operators import dags
from kafka_ingest.operators.context import request_of
from kafka_ingest.operators.tasks import LoadBatchOperator, PlanBatchOperator
from kafka_ingest.pipeline_files import files
from kafka_ingest.settings import PartitionFaultPolicy, PipelineSettings
from sandbox.paths import CHECKOUT
from tests.builders import pipeline_settings
from tests.dags.contexts import TaskInstance, task_context

EXAMPLES = CHECKOUT / "docs" / "examples"
PROMISE = "from kafka_ingest import kafka_to_postgres, load_pipeline\n"


def dag_of(*pipelines: PipelineSettings) -> DAG:
    with DAG("shop", schedule=None, start_date=pendulum.datetime(2026, 1, 1), default_args={"owner": "shop"}) as dag:
        for settings in pipelines:
            kafka_to_postgres(settings, group_id=f"load_{settings.pipeline}")
    return dag


def test_the_two_names_that_dags_of_users_need_are_promised_of_the_package_itself() -> None:
    assert (kafka_to_postgres, load_pipeline) == (dags.kafka_to_postgres, files.load_pipeline)
    assert kafka_ingest.__all__ == ["kafka_to_postgres", "load_pipeline"]
    for page in ("docs/operating.md", "docs/examples/own_dag.py"):
        assert PROMISE in (CHECKOUT / page).read_text(encoding="utf-8"), page


def test_no_other_name_of_the_package_is_made_up() -> None:
    with pytest.raises(AttributeError, match="module 'kafka_ingest' has no attribute 'load_pipelines'"):
        getattr(kafka_ingest, "load_pipelines")  # noqa: B009


def test_a_group_is_plan_load_and_audit_in_this_order() -> None:
    dag = dag_of(pipeline_settings())
    assert {task.task_id: task.upstream_task_ids for task in dag.tasks} == {
        "load_orders.plan_batch": set(),
        "load_orders.load_batch": {"load_orders.plan_batch"},
        "load_orders.audit_batch": {"load_orders.load_batch"},
    }


def test_the_pipeline_file_says_who_owns_the_tasks_and_how_they_are_retried() -> None:
    settings = pipeline_settings()
    schedule = replace(settings.schedule, owner="shop-data", retries=7, execution_timeout_seconds=60)
    for found in dag_of(replace(settings, schedule=schedule)).tasks:
        assert (found.owner, found.retries, found.execution_timeout) == ("shop-data", 7, timedelta(seconds=60))


def test_the_conf_of_the_dag_is_not_looked_at() -> None:
    planners = [t for t in dag_of(pipeline_settings()).tasks if isinstance(t, PlanBatchOperator | LoadBatchOperator)]
    assert [planner.has_form for planner in planners] == [False, False]


def test_two_groups_of_a_dag_are_two_requests() -> None:
    dag = dag_of(pipeline_settings(), replace(pipeline_settings(), pipeline="clicks"))
    plans = [task_id for task_id in dag.task_ids if task_id.endswith("plan_batch")]
    requests = {request_of(task_context(TaskInstance(task_id))) for task_id in plans}
    assert {request.task_group for request in requests} == {"load_orders", "load_clicks"}


def test_a_group_may_leave_partitions_out_and_ends_red_then() -> None:
    settings = pipeline_settings()
    plan = replace(settings.plan, on_partition_fault=PartitionFaultPolicy.LEAVE_OUT)
    report = dag_of(replace(settings, plan=plan)).get_task("load_orders.report_left_out")
    assert report.upstream_task_ids == {"load_orders.audit_batch"}


def test_a_mapped_group_asks_for_a_batch_of_each_index() -> None:
    with DAG("shop", schedule=None) as dag:

        @task
        def regions() -> list[str]:
            return ["eu", "us"]

        @task_group
        def region(name: str) -> None:
            kafka_to_postgres(pipeline_settings())

        region.expand(name=regions())
    plan = dag.get_task("region.kafka_to_postgres.plan_batch")
    assert list(plan.iter_mapped_task_groups())
    requests = [request_of(task_context(TaskInstance(plan.task_id, map_index=index))) for index in (0, 1)]
    assert [(r.task_group, r.map_index) for r in requests] == [
        ("region.kafka_to_postgres", 0),
        ("region.kafka_to_postgres", 1),
    ]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("dags")
    for name in ("own_dag.py", "clicks.yaml"):
        shutil.copy(EXAMPLES / name, folder)
    return load(folder, tmp_path_factory.mktemp("airflow"))


def test_the_example_loads_without_heavy_libraries_or_the_network(example: Report) -> None:
    assert example["import_errors"] == {}
    assert [(file["file"], file["heavy"], file["network"]) for file in example["files"]] == [("own_dag.py", [], [])]


def test_the_example_loads_clicks_and_then_makes_its_report(example: Report) -> None:
    [dag] = example["dags"]
    assert {t["task_id"]: t["upstream"] for t in dag["tasks"]} == {
        "load_clicks.plan_batch": [],
        "load_clicks.load_batch": ["load_clicks.plan_batch"],
        "load_clicks.audit_batch": ["load_clicks.load_batch"],
        "report": ["load_clicks.audit_batch"],
    }
    audit = next(t for t in dag["tasks"] if t["task_id"] == "load_clicks.audit_batch")
    assert audit["outlets"] == ["x-kafka-ingest://postgres_default/shop/clicks"]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_the_example_keeps_the_policies_of_dags(example: Report, policy: Policy) -> None:
    assert violations(example, policy) == [], policy.__doc__
