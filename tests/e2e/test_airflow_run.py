"""The main job through a running Airflow, with a killed Spark driver: real Kafka, PostgreSQL and Spark.

One Airflow serves the module. The first run, whose driver is killed, is a fixture: each test looks at what came of it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg2
import pytest
from psycopg2 import sql

from sandbox.airflow import AirflowServer, AirflowSetup
from sandbox.airflow_client import AirflowClient
from sandbox.airflow_settings import connection_variables, postgres_connection, spark_connection
from sandbox.demo_driver import kill_driver, wait_for_staged_rows
from sandbox.errors import SandboxError
from sandbox.kafka import KafkaBroker
from sandbox.orders import orders, send_orders
from sandbox.postgres import PostgresServer
from sandbox.verification import compare_orders
from tests.services import FreshTopics, TestServices, fresh_database

PIPELINE, TABLE = "e2e_orders", ("shop", "e2e_orders")
DAG_ID = f"kafka_to_postgres__{PIPELINE}"
RECORDS, MALFORMED, PARTITIONS = 60_000, 7, 3
TASKS = ("plan_batch", "load_batch", "audit_batch")
PASSWORD = 'p"a\\s;s@w/o%r$d x'
KAFKA_PASSWORD = "n0t-used-but-s3cret"

PIPELINE_FILE = """\
pipeline: {pipeline}
schedule: null
kafka: {{topics: [{topic}]}}
first_run: earliest
value:
  format: json
  columns:
    - {{name: order_id, type: bigint, required: true}}
    - {{name: customer, type: text}}
    - {{name: status, type: varchar(20)}}
    - {{name: amount, type: "numeric(12,2)"}}
    - {{name: currency, type: varchar(3)}}
    - {{name: ordered_at, type: timestamptz}}
    - {{name: note, type: text}}
    - {{name: lines, type: jsonb}}
    - {{name: tags, type: "text[]"}}
key: {{format: text, column: customer_key}}
tombstones: dead_letter
target: {{table: shop.{pipeline}, create_table: true}}
airflow: {{owner: shop, retries: 2, retry_delay_seconds: 1}}
"""
BROKEN_FILE = "pipeline: broken\nschedule: every hour\n"


@dataclass(frozen=True)
class World:
    """What the tests of this module look at."""

    server: AirflowServer
    topic: str
    bootstrap: str
    warehouse: Mapping[str, Any]

    @property
    def airflow(self) -> AirflowClient:
        return self.server.client()

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(psycopg2.connect(**dict[str, Any](self.warehouse))) as connection, connection.cursor() as cursor:
            cursor.execute(query, values)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

    def batch_of(self, run_id: str) -> tuple[Any, ...]:
        query = "SELECT batch_id::text, state, claim FROM kafka_ingest.batch WHERE dag_id = %s AND run_id = %s"
        [batch] = self.ask(query, DAG_ID, run_id)
        return batch

    def logs_of(self, run_id: str) -> str:
        tries = [(task["task_id"], task["try_number"] or 0) for task in self.airflow.tasks(DAG_ID, run_id)]
        numbered = [(name, number) for name, count in tries for number in range(1, count + 1)]
        logs = [
            f"--- {name} {number}\n{self.airflow.task_log(DAG_ID, run_id, name, number)}" for name, number in numbered
        ]
        return "\n".join(logs)

    def everything(self) -> list[Any]:
        """All that a run may change: rows, dead letters, batches, positions, each as one digest."""
        table = ".".join(TABLE)
        tables = [table, *(f"kafka_ingest.{name}" for name in ("dead_letter", "batch_partition", "committed_offset"))]
        digests = [self.ask(f"SELECT count(*), sum(hashtextextended(t::text, 0)) FROM {name} t") for name in tables]
        return [*digests, self.ask("SELECT batch_id, state, claim, committed_at FROM kafka_ingest.batch ORDER BY 1")]


@pytest.fixture(scope="module")
def world(
    services: TestServices,
    postgres_server: PostgresServer,
    kafka_broker: KafkaBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    topics = FreshTopics(kafka_broker.bootstrap)
    topic = topics.create(partitions=PARTITIONS)
    with (
        database_user(postgres_server) as user,
        fresh_database(postgres_server) as target,
        fresh_database(postgres_server) as own,
    ):
        warehouse = {**target, **user}
        setup = AirflowSetup(
            database_url=postgres_server.dsn(own["dbname"], scheme="postgresql+psycopg2"),
            connections=connections(kafka_broker.bootstrap, warehouse),
            extra_env={"KAFKA_INGEST_PIPELINES": str(pipeline_folder(tmp_path_factory.mktemp("pipelines"), topic))},
        )
        server = AirflowServer(services.folder / f"airflow-{uuid.uuid4().hex[:8]}", setup)
        try:
            server.start(report=lambda _: None)
            yield World(server, topic, kafka_broker.bootstrap, warehouse)
        finally:
            server.destroy()
            topics.delete_all()


@contextmanager
def database_user(server: PostgresServer) -> Iterator[dict[str, str]]:
    """Makes a user whose password needs quoting in a shell, in JSON and in a URL."""
    name = f"loader_{uuid.uuid4().hex[:8]}"
    role, password = sql.Identifier(name), sql.Literal(PASSWORD)
    execute(server.params(), sql.SQL("CREATE ROLE {} LOGIN SUPERUSER PASSWORD {}").format(role, password))
    yield {"user": name, "password": PASSWORD}
    execute(server.params(), sql.SQL("DROP ROLE {}").format(role))


def execute(params: Mapping[str, Any], statement: sql.Composed) -> None:
    with closing(psycopg2.connect(**dict[str, Any](params))) as connection:
        connection.autocommit = True
        connection.cursor().execute(statement)


def connections(bootstrap: str, warehouse: Mapping[str, Any]) -> dict[str, str]:
    kafka = {"bootstrap.servers": bootstrap, "security.protocol": "PLAINTEXT", "sasl.password": KAFKA_PASSWORD}
    return connection_variables(
        {
            "kafka_default": json.dumps({"conn_type": "kafka", "extra": kafka}),
            "postgres_default": postgres_connection(warehouse),
            "spark_default": spark_connection("local[2]"),
        }
    )


def pipeline_folder(folder: Path, topic: str) -> Path:
    (folder / "good.yaml").write_text(PIPELINE_FILE.format(pipeline=PIPELINE, topic=topic))
    (folder / "broken.yaml").write_text(BROKEN_FILE)
    return folder


@pytest.fixture(scope="module")
def killed_run(world: World) -> str:
    """The first run: its Spark driver is killed while rows are copied, and Airflow tries again."""
    send_orders(world.bootstrap, world.topic, orders(RECORDS, malformed=MALFORMED))
    world.airflow.wait_for_dag(DAG_ID)
    world.airflow.unpause(DAG_ID)
    run_id = world.airflow.trigger(DAG_ID)
    try:
        kill_driver(wait_for_staged_rows(world.warehouse, PIPELINE).batch_id)
        assert world.airflow.wait_for_run(DAG_ID, run_id) == "success"
    except (SandboxError, AssertionError) as fault:
        pytest.fail(f"{fault}\n{world.logs_of(run_id)}")
    return run_id


def test_after_a_killed_driver_every_record_is_there_exactly_once(world: World, killed_run: str) -> None:
    found = compare_orders(world.bootstrap, world.topic, world.warehouse, TABLE)
    assert (found.produced, found.rows, found.dead_letters) == (RECORDS, RECORDS - MALFORMED, MALFORMED)
    assert (found.missing, found.duplicates, found.unexpected) == (0, 0, 0)


def test_airflow_s_own_retry_loaded_the_batch_under_a_second_claim(world: World, killed_run: str) -> None:
    tries = {task["task_id"]: task["try_number"] for task in world.airflow.tasks(DAG_ID, killed_run)}
    assert tries == {"plan_batch": 1, "load_batch": 2, "audit_batch": 1, "follow_up": 1}
    _, state, claim = world.batch_of(killed_run)
    assert (state, claim) == ("committed", 2)
    assert "ended without having committed the batch" in world.airflow.task_log(DAG_ID, killed_run, "load_batch", 1)


def test_the_table_is_announced_with_batch_counts_and_offsets(world: World, killed_run: str) -> None:
    events = [e for e in world.airflow.asset_events(source_dag_id=DAG_ID) if e["source_run_id"] == killed_run]
    extra = events[0]["extra"]
    offsets = dict(world.ask("SELECT partition::text, committed_offset FROM kafka_ingest.committed_offset"))
    assert extra["batch_id"] == world.batch_of(killed_run)[0]
    assert (extra["rows"], extra["dead_letters"]) == (RECORDS - MALFORMED, MALFORMED)
    assert extra["committed_offsets"] == {world.topic: offsets}
    assert sum(offsets.values()) == RECORDS
    assert extra["valid_through"] is not None


def test_xcom_is_the_batch_in_a_few_lines(world: World, killed_run: str) -> None:
    planned, loaded, audited = (world.airflow.xcom(DAG_ID, killed_run, task) for task in TASKS)
    assert planned["state"] == "planned"
    assert loaded == audited
    assert loaded["counts"]["rows"] == RECORDS - MALFORMED
    assert {start for start, _ in loaded["ranges"][world.topic].values()} == {0}


def test_a_run_with_nothing_new_is_green_and_starts_no_spark(world: World, killed_run: str) -> None:
    run_id = world.airflow.trigger(DAG_ID)
    assert world.airflow.wait_for_run(DAG_ID, run_id) == "success"
    log = world.airflow.task_log(DAG_ID, run_id, "load_batch", 1)
    assert "there is nothing to read, Spark is not started" in log
    assert "spark-submit" not in log
    assert world.batch_of(run_id)[1:] == ("committed", 0)


def test_clearing_a_committed_run_changes_nothing(world: World, killed_run: str) -> None:
    before = world.everything()
    world.airflow.clear(DAG_ID, killed_run)
    assert world.airflow.wait_for_run(DAG_ID, killed_run) == "success"
    assert world.everything() == before
    assert "was loaded before" in world.airflow.task_log(DAG_ID, killed_run, "load_batch", 3)


def test_no_secret_is_in_logs_rendered_fields_or_xcom(world: World, killed_run: str) -> None:
    logs = [path for path in world.server.folder.rglob("*.log") if path.is_file()]
    shown = {str(path): path.read_text(errors="replace") for path in logs}
    for task in TASKS:
        instance = world.airflow.task(DAG_ID, killed_run, task)
        shown[f"rendered fields of {task}"] = json.dumps(instance, ensure_ascii=False)
        shown[f"XCom of {task}"] = json.dumps(world.airflow.xcom(DAG_ID, killed_run, task), ensure_ascii=False)
        shown[f"log of {task}"] = world.airflow.task_log(DAG_ID, killed_run, task, 1)
    spellings = {PASSWORD, json.dumps(PASSWORD)[1:-1], quote(PASSWORD, safe=""), KAFKA_PASSWORD}
    # In a log file, which is JSON itself, what is shown is escaped once more.
    spellings |= {json.dumps(text)[1:-1] for text in spellings}
    assert any("task_id=load_batch" in name for name in shown)
    assert [(name, text) for name, content in shown.items() for text in spellings if text in content] == []


def test_a_broken_pipeline_file_is_an_import_error_with_its_text(world: World, killed_run: str) -> None:
    [error] = world.airflow.import_errors()
    assert error["filename"] == "pipeline_file_faults.py"
    assert "broken.yaml:2: schedule: expected a cron expression" in error["stack_trace"]
    dag = world.airflow.call("GET", f"/dags/{DAG_ID}")
    assert (dag["is_stale"], dag["has_import_errors"]) == (False, False)
