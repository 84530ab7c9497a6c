"""The main job through a running Airflow, with a killed Spark driver: real Kafka, PostgreSQL and Spark.

The first run, whose driver is killed, is a fixture: each test looks at what came of it.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import psycopg2
import pytest

from sandbox.airflow_client import AirflowClient
from sandbox.demo_driver import kill_driver, wait_for_staged_rows
from sandbox.errors import SandboxError
from tests.deadlines import until
from tests.e2e.airflow_world import KAFKA_PASSWORD, PASSWORD, AirflowWorld, Shop, opened_shop
from tests.e2e.lines_pipeline import LinesPipeline

RECORDS, MALFORMED = 60_000, 7
TASKS = ("plan_batch", "load_batch", "audit_batch")
BROKEN_FILE = "pipeline: broken\nschedule: every hour\n"


@dataclass(frozen=True)
class KilledRun:
    """The first run: its Spark driver is killed while rows are copied, and Airflow tries again."""

    world: AirflowWorld
    shop: Shop
    run_id: str

    @property
    def airflow(self) -> AirflowClient:
        return self.world.airflow

    @property
    def dag_id(self) -> str:
        return self.shop.dag_id

    def batch_of(self, run_id: str) -> tuple[Any, ...]:
        query = "SELECT batch_id::text, state, claim FROM kafka_ingest.batch WHERE dag_id = %s AND run_id = %s"
        [batch] = self.world.ask(query, self.dag_id, run_id)
        return batch

    def everything(self) -> list[Any]:
        """All that a run may change: rows, dead letters, batches, positions, each as one digest."""
        digest = "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM {} t"
        tables = [f"kafka_ingest.{name}" for name in ("dead_letter", "batch_partition", "committed_offset")]
        own = [self.world.ask(f"{digest.format(name)} WHERE pipeline = %s", self.shop.name) for name in tables]
        batches = "SELECT batch_id, state, claim, committed_at FROM kafka_ingest.batch WHERE pipeline = %s ORDER BY 1"
        return [*own, self.world.ask(digest.format(self.shop.table)), self.world.ask(batches, self.shop.name)]


@pytest.fixture(scope="module")
def killed(world: AirflowWorld) -> KilledRun:
    shop = opened_shop(world, "killed_driver", partitions=3, records=RECORDS, malformed=MALFORMED)
    run_id = world.start_run(shop)
    try:
        kill_driver(wait_for_staged_rows(world.warehouse, shop.name).batch_id)
        assert world.airflow.wait_for_run(shop.dag_id, run_id) == "success"
    except (SandboxError, AssertionError) as fault:
        pytest.fail(f"{fault}\n{world.logs_of(shop.dag_id, run_id)}")
    return KilledRun(world, shop, run_id)


def test_after_a_killed_driver_every_record_is_there_exactly_once(killed: KilledRun) -> None:
    killed.world.require_every_order_once(killed.shop)


def test_airflow_s_own_retry_loaded_the_batch_under_a_second_claim(killed: KilledRun) -> None:
    tasks = {task["task_id"]: task for task in killed.airflow.tasks(killed.dag_id, killed.run_id)}
    assert [tasks[name]["try_number"] for name in TASKS] == [1, 2, 1]
    _, state, claim = killed.batch_of(killed.run_id)
    assert (state, claim) == ("committed", 2)
    log = killed.airflow.task_log(killed.dag_id, killed.run_id, "load_batch", 1)
    assert "ended without having committed the batch" in log


def test_no_process_starts_to_see_that_no_run_follows(killed: KilledRun) -> None:
    task = killed.airflow.task(killed.dag_id, killed.run_id, "follow_up")
    assert (task["state"], task["pid"]) == ("skipped", None)
    log = killed.airflow.task_log(killed.dag_id, killed.run_id, "audit_batch", 1)
    assert f"No run follows: its {RECORDS:,} offsets are below the limit of 2,000,000" in log


def test_a_small_batch_is_loaded_in_the_process_of_its_task(world: AirflowWorld) -> None:
    shop = opened_shop(world, "small_batch", in_process_below=50_000)
    run_id = world.run(shop)
    world.require_every_order_once(shop)
    log = world.airflow.task_log(shop.dag_id, run_id, "load_batch", 1)
    assert "In this process, without Spark: 1,000 offsets, fewer than spark.in_process_below_offsets (50,000)" in log
    assert "Spark-Submit" not in log
    loaded, audited = (world.airflow.xcom(shop.dag_id, run_id, task) for task in TASKS[1:])
    assert loaded.pop("phases")["stage"] > 0
    assert loaded == audited
    events = world.airflow.asset_events(source_dag_id=shop.dag_id)
    assert [event["extra"]["batch_id"] for event in events] == [audited["batch_id"]]


def test_the_table_is_announced_with_batch_counts_and_offsets(killed: KilledRun) -> None:
    events = killed.airflow.asset_events(source_dag_id=killed.dag_id)
    extra = next(event["extra"] for event in events if event["source_run_id"] == killed.run_id)
    query = "SELECT partition::text, committed_offset FROM kafka_ingest.committed_offset WHERE pipeline = %s"
    offsets = dict(killed.world.ask(query, killed.shop.name))
    assert extra["batch_id"] == killed.batch_of(killed.run_id)[0]
    assert (extra["rows"], extra["dead_letters"]) == (RECORDS - MALFORMED, MALFORMED)
    assert extra["committed_offsets"] == {killed.shop.topic: offsets}
    assert sum(offsets.values()) == RECORDS
    assert extra["valid_through"] is not None


def test_xcom_is_the_batch_in_a_few_lines(killed: KilledRun) -> None:
    planned, loaded, audited = (killed.airflow.xcom(killed.dag_id, killed.run_id, task) for task in TASKS)
    assert planned["state"] == "planned"
    phases = loaded.pop("phases")
    assert set(phases) == {"session", "stage", "publish", "tasks"}
    assert loaded == audited
    assert loaded["counts"]["rows"] == RECORDS - MALFORMED
    assert {start for start, _ in loaded["ranges"][killed.shop.topic].values()} == {0}


def test_every_task_links_to_its_batch_and_the_load_to_no_page_of_a_spark_that_has_none(killed: KilledRun) -> None:
    page = f"/kafka-ingest/batches/{killed.batch_of(killed.run_id)[0]}"
    run = f"/dags/{killed.dag_id}/dagRuns/{quote(killed.run_id, safe='')}"
    found = {task: killed.airflow.call("GET", f"{run}/taskInstances/{task}/links")["extra_links"] for task in TASKS}
    assert found == {
        "plan_batch": {"Batch": page},
        "load_batch": {"Batch": page, "Spark UI": None},
        "audit_batch": {"Batch": page},
    }


def test_a_run_with_nothing_new_is_green_and_starts_no_spark(killed: KilledRun) -> None:
    run_id = killed.world.run(killed.shop)
    log = killed.airflow.task_log(killed.dag_id, run_id, "load_batch", 1)
    assert "there is nothing to read, Spark is not started" in log
    assert "spark-submit" not in log
    assert killed.batch_of(run_id)[1:] == ("committed", 0)


def test_clearing_a_committed_run_changes_nothing(killed: KilledRun) -> None:
    before = killed.everything()
    killed.airflow.clear(killed.dag_id, killed.run_id)
    killed.world.require_success(killed.shop, killed.run_id)
    assert killed.everything() == before
    assert "was loaded before" in killed.airflow.task_log(killed.dag_id, killed.run_id, "load_batch", 3)


def test_no_secret_is_in_logs_rendered_fields_xcom_or_airflows_database(killed: KilledRun) -> None:
    airflow, dag_id, run_id = killed.airflow, killed.dag_id, killed.run_id
    logs = [path for path in killed.world.server.folder.rglob("*.log") if path.is_file()]
    shown = {str(path): path.read_text(errors="replace") for path in logs}
    for task in TASKS:
        instance = airflow.task(dag_id, run_id, task)
        shown[f"rendered fields of {task}"] = json.dumps(instance, ensure_ascii=False)
        shown[f"XCom of {task}"] = json.dumps(airflow.xcom(dag_id, run_id, task), ensure_ascii=False)
        shown[f"log of {task}"] = airflow.task_log(dag_id, run_id, task, 1)
    shown |= tables_of_airflow(killed.world.server.setup.database_url)
    spellings = {PASSWORD, json.dumps(PASSWORD)[1:-1], quote(PASSWORD, safe=""), KAFKA_PASSWORD}
    # In a log file, which is JSON itself, what is shown is escaped once more.
    spellings |= {json.dumps(text)[1:-1] for text in spellings}
    assert any("task_id=load_batch" in name for name in shown)
    assert [(name, text) for name, content in shown.items() for text in spellings if text in content] == []


def tables_of_airflow(url: str) -> dict[str, str]:
    """Give the content of every table of Airflow's own database, as text."""
    with closing(psycopg2.connect(url.replace("+psycopg2", ""))) as connection, connection.cursor() as cursor:
        own = "relnamespace = 'public'::regnamespace AND relkind = 'r'"
        cursor.execute(f"SELECT oid::regclass::text FROM pg_class WHERE {own}")
        tables = [str(name) for (name,) in cursor.fetchall()]
        assert {"task_instance", "rendered_task_instance_fields", "xcom"} <= set(tables)
        found = {}
        for table in tables:
            cursor.execute(f"SELECT coalesce(string_agg(t::text, ' '), '') FROM {table} t")
            [(found[f"Airflow's table {table}"],)] = cursor.fetchall()
        return found


def test_a_broken_pipeline_file_is_an_import_error_with_its_text_and_hides_no_other(world: AirflowWorld) -> None:
    sound, broken = LinesPipeline("sound", "not-read"), world.pipelines / "broken.yaml"
    world.add(sound)
    broken.write_text(BROKEN_FILE)
    until(lambda: world.airflow.import_errors() != [], "the broken file is noticed", 120)
    [error] = world.airflow.import_errors()
    assert error["filename"] == "pipeline_file_faults.py"
    assert "broken.yaml:2: schedule: expected a cron expression" in error["stack_trace"]
    dag = world.airflow.call("GET", f"/dags/{sound.dag_id}")
    assert (dag["is_stale"], dag["has_import_errors"]) == (False, False)
    broken.unlink()
    until(lambda: world.airflow.import_errors() == [], "the error goes away with the file", 120)
