"""Links of tasks: to the batch on the product's own page, and to Spark's page of the load."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.serialization import serialized_objects

from kafka_ingest.errors import ConfigError, TooManyDeadLetters
from kafka_ingest.operators.dags import pipeline_dag
from kafka_ingest.operators.spark_job import SparkSubmitLog
from kafka_ingest.operators.task_links import HISTORY, BatchLink, SparkLink, TaskLinks, page_path, spark_history
from kafka_ingest.operators.tasks import AuditBatchOperator, LoadBatchOperator, PlanBatchOperator
from kafka_ingest.page.links import Links
from kafka_ingest.pipeline_files.files import PAGE_MOUNT
from tests.builders import offset_range, pipeline_settings, planned_batch
from tests.dags.all_fakes import FakeSystem
from tests.dags.contexts import OutletEvents, TaskInstance, run_context

BATCH, SPARK = "_link_BatchLink", "_link_SparkLink"
UI, APPLICATION = "http://127.0.0.1:4040", "local-1764500000000"
PATTERN = "https://spark.example/history/{application_id}/"
#: What the driver logs (``spark_jobs/spark_runner.py``), as spark-submit prints it.
STARTED = f"22:38:16 INFO Spark application {APPLICATION} has started"


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> FakeSystem:
    monkeypatch.delenv("AIRFLOW__API__BASE_URL", raising=False)
    system = FakeSystem()
    system.install(monkeypatch)
    return system


@pytest.mark.parametrize(
    ("base_url", "path"),
    [
        ("", "/kafka-ingest/batches/1"),
        ("http://localhost:8080", "/kafka-ingest/batches/1"),
        ("https://host.example/airflow/", "/airflow/kafka-ingest/batches/1"),
    ],
)
def test_a_page_is_found_below_the_path_that_airflow_is_served_at(
    base_url: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    assert page_path("batches", "1") == path


def test_tasks_and_the_page_spell_its_addresses_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://host.example/airflow")
    assert page_path("batches", "b 1") == Links(f"/airflow{PAGE_MOUNT}").batch("b 1", "")


def test_a_name_cannot_break_out_of_its_part_of_the_path() -> None:
    assert page_path("pipelines", "a/../b?c#d").endswith("/kafka-ingest/pipelines/a%2F..%2Fb%3Fc%23d")


def test_the_api_server_finds_every_link_by_its_key_alone() -> None:
    known: Any = serialized_objects
    serialization = getattr(known, "DagSerialization", None) or known.SerializedDAG  # before Airflow 3.2
    dag = serialization.from_dict(serialization.to_dict(pipeline_dag(pipeline_settings())))
    found = {
        task.task_id: {link.name: link.xcom_key for link in task.operator_extra_links}
        for task in dag.task_dict.values()
        if task.operator_extra_links
    }
    assert found == {
        "plan_batch": {"Batch": BATCH},
        "load_batch": {"Batch": BATCH, "Spark UI": SPARK},
        "audit_batch": {"Batch": BATCH},
    }


def test_each_task_of_a_batch_links_to_it(system: FakeSystem) -> None:
    system.log.append("orders", b"1")
    stored = {}
    for operator in (PlanBatchOperator, LoadBatchOperator, AuditBatchOperator):
        ti = TaskInstance(run_id="r1")
        task = operator(task_id="task", pipeline=system.settings)
        context: Any = {**run_context(ti=ti), "outlet_events": OutletEvents()}
        batch_id = task.execute(context)["batch_id"]
        stored[operator.__name__] = ti.xcoms[BATCH]
        assert BatchLink().get_link(task, ti_key=ti) == ti.xcoms[BATCH]  # type: ignore[arg-type]
    assert set(stored.values()) == {f"/kafka-ingest/batches/{batch_id}"}
    assert len(stored) == 3


def test_a_load_that_fails_links_to_its_batch_all_the_same(system: FakeSystem) -> None:
    system.log.append("orders", b"1")
    system.job_fault = TooManyDeadLetters("too many")
    ti = TaskInstance("load_batch", run_id="r1")
    with pytest.raises(AirflowException):
        LoadBatchOperator(task_id="load_batch", pipeline=system.settings).execute(run_context(ti=ti))
    assert ti.xcoms[BATCH].startswith("/kafka-ingest/batches/")


def told(*lines: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    log = SparkSubmitLog(logging.getLogger("hook"), lambda *application: found.append(application))
    for line in lines:
        log.info(line)
    return found


def test_the_application_is_read_from_the_drivers_line_with_its_page_where_it_has_one() -> None:
    assert told(STARTED, f"{STARTED}, its page: {UI}") == [(APPLICATION, ""), (APPLICATION, UI)]


@pytest.mark.parametrize(
    "line",
    [
        f"staging: {STARTED}",
        f"{STARTED} in vain",
        f"{STARTED}, its page: javascript:alert(1)",
        "22:38:16 INFO staging: 5 records",
    ],
)
def test_no_other_line_is_taken_for_an_application(line: str) -> None:
    assert told(line) == []


def test_a_load_links_to_its_application_and_leaves_it_in_the_ledger(system: FakeSystem) -> None:
    system.log.append("orders", b"1")
    system.job_says = (f"{STARTED}, its page: {UI}",)
    ti = TaskInstance("load_batch", run_id="r1")
    LoadBatchOperator(task_id="load_batch", pipeline=system.settings).execute(run_context(ti=ti))
    assert ti.xcoms[SPARK] == UI
    [load] = system.attempts.recorded.values()
    assert (load.spark_application_id, load.spark_ui_url) == (APPLICATION, UI)


def links(history: str = "") -> tuple[TaskLinks, dict[str, str]]:
    stored: dict[str, str] = {}
    return TaskLinks(stored.__setitem__, logging.getLogger("task"), history=history), stored


@pytest.mark.parametrize(
    ("ui_url", "history", "while_it_runs", "afterwards"),
    [
        (UI, "", UI, ""),
        (UI, PATTERN, UI, f"https://spark.example/history/{APPLICATION}/"),
        ("", PATTERN, f"https://spark.example/history/{APPLICATION}/", f"https://spark.example/history/{APPLICATION}/"),
        ("", "", None, ""),
    ],
)
def test_spark_is_linked_where_it_can_be_seen(
    ui_url: str, history: str, while_it_runs: str | None, afterwards: str
) -> None:
    shown, stored = links(history)
    shown.show_application(APPLICATION, ui_url)
    assert stored.get(SPARK) == while_it_runs
    task = LoadBatchOperator(task_id="load_batch", pipeline=pipeline_settings())
    task.links = shown
    assert SparkLink().get_link(task, ti_key=TaskInstance()) == afterwards  # type: ignore[arg-type]


@pytest.mark.parametrize("link", [BatchLink(), SparkLink()])
def test_a_task_that_never_ran_has_an_empty_link_and_no_error(link: BatchLink | SparkLink) -> None:
    task = LoadBatchOperator(task_id="load_batch", pipeline=pipeline_settings())
    assert link.get_link(task, ti_key=TaskInstance()) == ""  # type: ignore[arg-type]


def test_a_link_that_airflow_does_not_store_fails_no_task(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: object) -> None:
        raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))

    TaskLinks(refuse, logging.getLogger("task")).show_batch(planned_batch(offset_range(0, 0, 1)))
    assert "The link Batch could not be stored" in caplog.text


@pytest.mark.parametrize("value", ["", " ", PATTERN, "http://h:18080/history/{application_id}/jobs/"])
def test_a_history_server_is_named_by_a_pattern_or_not_at_all(value: str) -> None:
    assert spark_history({HISTORY: value}) == value.strip()


@pytest.mark.parametrize(
    "value", ["https://spark.example/", "spark.example/{application_id}", "javascript:{application_id}"]
)
def test_a_history_server_that_cannot_be_linked_to_stops_the_parse(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HISTORY, value)
    with pytest.raises(ConfigError, match=HISTORY) as caught:
        pipeline_dag(pipeline_settings())
    assert caught.value.found == value
