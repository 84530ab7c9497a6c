"""Two DAGs load one pipeline: a user's own DAG with the task group, and the pipeline's own. One waits for the other.

The user's DAG is the example of the documentation, with a topic of the test's.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import pytest
from confluent_kafka import Producer

from kafka_ingest.postgres.ledger import PostgresLedger
from sandbox.paths import CHECKOUT
from tests.deadlines import until
from tests.e2e.airflow_world import START_SECONDS, AirflowWorld
from tests.e2e.lines_pipeline import HOUR, this_hour

# Runs that wait for each other take minutes: make test-airflow and make test-all run them.
pytestmark = pytest.mark.slow

OWN_DAG, EXAMPLES = "shop_report", CHECKOUT / "docs" / "examples"
#: A busy pipeline is looked at every 30 s: the second look is the last one.
IMPATIENT = "airflow: {owner: shop, retries: 1, retry_delay_seconds: 1, busy_timeout_seconds: 10}\n"
#: A load that is held for longer than half a minute is tried again. A frozen one keeps the pipeline all the same.
HOLDER = "airflow: {owner: shop, retries: 3, retry_delay_seconds: 1}\nhold: {heartbeat_timeout_seconds: 600}\n"


@dataclass(frozen=True)
class Clicks:
    """The pipeline of the example, with a DAG of its own besides."""

    topic: str
    name: str = "clicks"

    @property
    def dag_id(self) -> str:
        return f"kafka_to_postgres__{self.name}"

    def example(self) -> str:
        text = (EXAMPLES / "clicks.yaml").read_text()
        assert "topics: [clicks]" in text
        return text.replace("topics: [clicks]", f"topics: [{self.topic}]") + HOLDER

    def text(self) -> str:
        keys = ("schedule:", "timezone:", "end:", "airflow:")
        lines = [line for line in self.example().splitlines(keepends=True) if not line.startswith(keys)]
        return "".join([*lines, "schedule: null\n", IMPATIENT])


def send_clicks(world: AirflowWorld, topic: str, numbers: Iterable[int]) -> None:
    """Sends clicks of the hour before the last: the schedule's newest run takes them, too."""
    producer = Producer({"bootstrap.servers": world.bootstrap, "enable.idempotence": True})
    time_ms = int((this_hour() - 2 * HOUR).timestamp() * 1_000)
    for number in numbers:
        producer.produce(topic, json.dumps({"click": number}), partition=0, timestamp=time_ms)
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def clicks(world: AirflowWorld) -> Clicks:
    """Clicks 0 and 1 wait; the user's DAG is there and still paused."""
    clicks = Clicks(world.topics.create())
    send_clicks(world, clicks.topic, range(2))
    shutil.copy(EXAMPLES / "own_dag.py", world.own_dags)
    (world.own_dags / "clicks.yaml").write_text(clicks.example())
    world.add(clicks)
    world.airflow.wait_for_dag(OWN_DAG)
    return clicks


def require_clicks_once(world: AirflowWorld, clicks: Clicks, count: int) -> None:
    rows = world.ask("SELECT kafka_offset, (payload ->> 'click')::int FROM shop.clicks ORDER BY 1")
    assert rows == [(number, number) for number in range(count)]
    assert PostgresLedger(world.warehouse).violations(clicks.name) == []


def test_c03_of_two_dags_at_once_one_waits_without_using_a_retry_and_both_end_green(
    world: AirflowWorld, clicks: Clicks
) -> None:
    world.airflow.unpause(OWN_DAG)
    until(lambda: world.airflow.runs(OWN_DAG) != [], "the schedule makes a run", START_SECONDS)
    holder = world.airflow.runs(OWN_DAG)[0]["dag_run_id"]
    with world.held_before_commit(clicks):
        waiting = world.start_run(clicks)
        world.airflow.wait_for_task(clicks.dag_id, waiting, "plan_batch", states=["up_for_reschedule"])
    world.require_end(OWN_DAG, holder, "success")
    world.require_success(clicks, waiting)
    assert world.airflow.task(clicks.dag_id, waiting, "plan_batch")["try_number"] == 1
    assert [load[:1] + load[3:] for load in world.committed(clicks)] == [(holder, 0, 2, 2)]
    require_clicks_once(world, clicks, 2)


def test_the_users_own_tasks_run_after_the_group(world: AirflowWorld, clicks: Clicks) -> None:
    run_id = world.airflow.runs(OWN_DAG)[-1]["dag_run_id"]
    assert world.airflow.task_states(OWN_DAG, run_id) == {
        "load_clicks.plan_batch": "success",
        "load_clicks.load_batch": "success",
        "load_clicks.audit_batch": "success",
        "report": "success",
    }
    assert "shop.clicks is complete up to" in world.airflow.task_log(OWN_DAG, run_id, "report", 1)


@contextmanager
def frozen_load(world: AirflowWorld) -> Iterator[None]:
    """Stop the processes of the planned batch's load meanwhile: it holds the pipeline, and neither ends nor fails."""
    [(batch_id,)] = world.ask("SELECT batch_id::text FROM kafka_ingest.batch WHERE state = 'planned'")
    processes = [found for found in psutil.process_iter(["cmdline"]) if batch_id in (found.info["cmdline"] or ())]
    assert processes
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


def test_a_run_that_waits_for_too_long_ends_red_and_names_the_holder(world: AirflowWorld, clicks: Clicks) -> None:
    send_clicks(world, clicks.topic, (2,))
    holder = world.airflow.trigger(OWN_DAG)
    # A load that waits for the lock fails after half a minute, and gives the pipeline back: another could have it then.
    with world.held_before_commit(clicks), frozen_load(world):
        waiting = world.start_run(clicks)
        world.require_end(clicks.dag_id, waiting, "failed")
    task = world.airflow.task(clicks.dag_id, waiting, "plan_batch")
    log = world.airflow.task_log(clicks.dag_id, waiting, "plan_batch", 1)
    assert (task["state"], task["try_number"]) == ("failed", 1)
    assert "BusyTooLong" in log
    assert OWN_DAG in log
    assert holder in log
    world.require_end(OWN_DAG, holder, "success")
    require_clicks_once(world, clicks, 3)
