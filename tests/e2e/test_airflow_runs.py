"""Every kind of run in a running Airflow: scheduled by intervals, followed up, by the form, backfilled, cleared.

One Airflow serves the module, and the tests go on where the ones before them left table and position. The topic has one
partition with two records in each of three hours that have ended; the pipeline reads three offsets a run.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_ingest.adapters.postgres_ledger import PostgresLedger
from sandbox.airflow import AirflowServer, AirflowSetup
from sandbox.airflow_client import AirflowClient
from sandbox.airflow_settings import connection_variables, kafka_connection, postgres_connection, spark_connection
from sandbox.kafka import KafkaBroker
from sandbox.postgres import PostgresServer
from tests.deadlines import until
from tests.e2e.airflow_world import AirflowWorld
from tests.services import FreshTopics, TestServices, fresh_database

# Five Spark jobs, one after another, take minutes: make test-all runs these.
pytestmark = pytest.mark.slow

PIPELINE, DAG_ID = "hours", "kafka_to_postgres__hours"
PIPELINE_FILE = """\
pipeline: hours
schedule: "@hourly"
start_date: {start_date}
end: interval
kafka: {{topics: [{topic}]}}
first_run: earliest
limit: {{offsets_per_run: 3}}
value: {{format: text, column: line}}
target: {{table: shop.hours, create_table: true}}
airflow: {{owner: shop, retries: 1, retry_delay_seconds: 1}}
"""
HOURS, RECORDS, DAY = 3, 6, timedelta(days=1)
SKIPPED = dict.fromkeys(("plan_batch", "load_batch", "audit_batch", "follow_up"), "skipped")


@dataclass(frozen=True)
class Hours:
    """The pipeline of this module."""

    world: AirflowWorld
    first_hour: datetime

    @property
    def airflow(self) -> AirflowClient:
        return self.world.airflow

    def hour(self, number: int) -> str:
        return (self.first_hour + timedelta(hours=number)).isoformat()

    def batches(self) -> list[tuple[Any, ...]]:
        """Gives run, number, kind, start, end and committed offset after, of all batches that read something."""
        return self.world.ask(
            "SELECT b.run_id, b.request_number, b.kind, p.range_start, p.range_end, p.committed_after"
            " FROM kafka_ingest.batch b JOIN kafka_ingest.batch_partition p USING (batch_id)"
            " WHERE b.state = 'committed' ORDER BY b.ordinal"
        )

    def require_every_record_once(self) -> None:
        rows = self.world.ask("SELECT kafka_offset, line FROM shop.hours ORDER BY kafka_offset")
        assert rows == [(offset, f"record {offset}") for offset in range(RECORDS)]
        assert PostgresLedger(self.world.warehouse).violations(PIPELINE) == []

    def finish(self, run_id: str, state: str = "success") -> None:
        found = self.airflow.wait_for_run(DAG_ID, run_id)
        assert found == state, self.airflow.task_states(DAG_ID, run_id)

    def backfill(self, number: int, behaviour: str) -> str:
        """Backfills one hour and gives the id of its run."""
        interval = {"from_date": self.hour(number), "to_date": self.hour(number)}
        body = {"dag_id": DAG_ID, **interval, "reprocess_behavior": behaviour, "max_active_runs": 1}
        backfill = self.airflow.call("POST", "/backfills", body)["id"]
        path = f"/backfills/{backfill}"
        until(lambda: self.airflow.call("GET", path)["completed_at"] is not None, "the backfill ends", 600)
        [run] = [r for r in self.airflow.runs(DAG_ID) if r["logical_date"] and same(r["logical_date"], interval)]
        return str(run["dag_run_id"])


def same(moment: str, interval: dict[str, str]) -> bool:
    return datetime.fromisoformat(moment) == datetime.fromisoformat(interval["from_date"])


@pytest.fixture(scope="module")
def hours(
    services: TestServices,
    postgres_server: PostgresServer,
    kafka_broker: KafkaBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Hours]:
    topics = FreshTopics(kafka_broker.bootstrap)
    topic = topics.create(partitions=1)
    # The hour before the current one may end while records are sent: all three have ended for certain.
    first_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS + 1)
    send(kafka_broker.bootstrap, topic, first_hour)
    folder = tmp_path_factory.mktemp("pipelines")
    (folder / "hours.yaml").write_text(PIPELINE_FILE.format(topic=topic, start_date=first_hour.date() - DAY))
    with fresh_database(postgres_server) as warehouse, fresh_database(postgres_server) as own:
        connections = {
            "kafka_default": kafka_connection(kafka_broker.bootstrap),
            "postgres_default": postgres_connection(warehouse),
            "spark_default": spark_connection("local[1]"),
        }
        setup = AirflowSetup(
            database_url=postgres_server.dsn(own["dbname"], scheme="postgresql+psycopg2"),
            connections=connection_variables(connections),
            extra_env={"KAFKA_INGEST_PIPELINES": str(folder)},
        )
        server = AirflowServer(services.folder / f"airflow-{uuid.uuid4().hex[:8]}", setup)
        try:
            server.start(report=lambda _: None)
            world = AirflowWorld(server, kafka_broker.bootstrap, warehouse)
            world.airflow.wait_for_dag(DAG_ID)
            yield Hours(world, first_hour)
        finally:
            server.destroy()
            topics.delete_all()


def send(bootstrap: str, topic: str, first_hour: datetime) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for offset in range(RECORDS):
        time = first_hour + timedelta(hours=offset // 2, minutes=10 + offset)
        producer.produce(topic, f"record {offset}".encode(), partition=0, timestamp=int(time.timestamp() * 1_000))
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def drained(hours: Hours) -> list[str]:
    """The first scheduled run and those that followed it."""
    hours.airflow.unpause(DAG_ID)
    until(lambda: len(hours.batches()) == RECORDS // 3, "follow-ups drain the backlog", 600)
    until(lambda: not unfinished(hours), "every run has ended", 300)
    hours.airflow.pause(DAG_ID)
    return [run for run, *_ in hours.batches()]


def unfinished(hours: Hours) -> list[str]:
    return [r["dag_run_id"] for r in hours.airflow.runs(DAG_ID) if r["state"] not in ("success", "failed")]


def test_a_scheduled_run_that_the_limit_cut_is_followed_until_nothing_waits(hours: Hours, drained: list[str]) -> None:
    first, second = hours.batches()
    assert first[1:] == (0, "live", 0, 3, 3)
    assert second[1:] == (0, "live", 3, 6, 6)
    assert drained[0].startswith("scheduled__")
    assert drained[1].startswith("follow_up__")
    hours.require_every_record_once()


def test_a_follow_up_ends_where_the_scheduled_run_would_have_ended(hours: Hours, drained: list[str]) -> None:
    rows = hours.world.ask(
        "SELECT run_id, parameters::jsonb ->> 'until_ms' FROM kafka_ingest.batch ORDER BY ordinal LIMIT 2"
    )
    assert [run for run, _ in rows] == drained
    assert rows[0][1] == rows[1][1]
    assert rows[0][1] is not None


def test_clearing_the_task_that_follows_up_starts_no_second_run(hours: Hours, drained: list[str]) -> None:
    runs = {run["dag_run_id"] for run in hours.airflow.runs(DAG_ID)}
    hours.airflow.unpause(DAG_ID)
    hours.airflow.clear(DAG_ID, drained[0], ["follow_up"])
    hours.finish(drained[0])
    assert hours.airflow.task_states(DAG_ID, drained[0])["follow_up"] == "skipped"
    new = {run["dag_run_id"] for run in hours.airflow.runs(DAG_ID)} - runs
    assert [run for run in new if run.startswith("follow_up__")] == []


def test_plan_only_shows_what_would_be_read_and_ends_green(hours: Hours, drained: list[str]) -> None:
    conf = {"mode": "plan_only", "from": hours.hour(0), "to": hours.hour(1)}
    run_id = hours.airflow.trigger(DAG_ID, conf=conf)
    hours.finish(run_id)
    assert hours.airflow.task_states(DAG_ID, run_id) == SKIPPED
    log = hours.airflow.task_log(DAG_ID, run_id, "plan_batch", 1)
    assert "A run would read 2 offsets in 1 partitions" in log
    assert "2 of the offsets were loaded before: their rows are replaced" in log


def test_faults_of_the_form_are_one_message_of_the_plan_task(hours: Hours, drained: list[str]) -> None:
    run_id = hours.airflow.trigger(DAG_ID, conf={"mode": "reload", "limit": 5, "colour": "red"})
    hours.finish(run_id, "failed")
    assert hours.airflow.task(DAG_ID, run_id, "plan_batch")["try_number"] == 1
    log = hours.airflow.task_log(DAG_ID, run_id, "plan_batch", 1)
    assert all(f"{key}: expected" in log for key in ("colour", "from", "reason", "limit"))


def test_a_reload_by_the_form_replaces_its_span(hours: Hours, drained: list[str]) -> None:
    hours.world.ask("UPDATE shop.hours SET line = 'spoilt' WHERE kafka_offset IN (4, 5)")
    conf = {"mode": "reload", "from": hours.hour(2), "reason": "two rows were spoilt"}
    run_id = hours.airflow.trigger(DAG_ID, conf=conf)
    hours.finish(run_id)
    assert hours.batches()[-1] == (run_id, 0, "reload", 4, 6, 6)
    hours.require_every_record_once()


def test_a_backfill_reloads_the_hour_of_each_run_and_again_when_it_is_reprocessed(
    hours: Hours, drained: list[str]
) -> None:
    run_id = hours.backfill(0, "none")
    hours.finish(run_id)
    assert hours.batches()[-1] == (run_id, 0, "reload", 0, 2, 6)
    hours.require_every_record_once()
    assert hours.backfill(0, "completed") == run_id
    hours.finish(run_id)
    assert hours.batches()[-1] == (run_id, 1, "reload", 0, 2, 6)
    hours.require_every_record_once()


def test_clearing_a_live_run_changes_nothing(hours: Hours, drained: list[str]) -> None:
    before = hours.batches()
    hours.airflow.clear(DAG_ID, drained[0])
    hours.finish(drained[0])
    assert hours.batches() == before
    hours.require_every_record_once()
