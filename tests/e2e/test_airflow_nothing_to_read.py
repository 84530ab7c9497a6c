"""Runs that find nothing: an empty topic, then one whose records wait for an open transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer

from tests.deadlines import until
from tests.e2e.airflow_world import AirflowWorld
from tests.e2e.lines_pipeline import LinesPipeline, new_topic, require_lines_once, send_lines

KAFKA_SECONDS = 30


@dataclass(frozen=True)
class Quiet:
    """A pipeline whose topic was empty for two runs."""

    world: AirflowWorld
    pipeline: LinesPipeline
    runs: tuple[str, str]

    def log(self, run_id: str, task: str) -> str:
        return self.world.airflow.task_log(self.pipeline.dag_id, run_id, task, 1)


@pytest.fixture(scope="module")
def quiet(world: AirflowWorld) -> Quiet:
    pipeline = LinesPipeline("quiet", new_topic(world))
    world.add(pipeline)
    return Quiet(world, pipeline, (world.run(pipeline), world.run(pipeline)))


def test_c42_runs_of_an_empty_topic_are_green_and_start_no_spark(quiet: Quiet) -> None:
    for run_id in quiet.runs:
        assert set(quiet.world.airflow.task_states(quiet.pipeline.dag_id, run_id).values()) == {"success", "skipped"}
        assert "there is nothing to read, Spark is not started" in quiet.log(run_id, "load_batch")
    assert quiet.world.committed(quiet.pipeline) == []


def test_runs_that_load_nothing_send_no_asset_event_and_one_that_loads_sends_it_before_the_ledger_says_so(
    quiet: Quiet,
) -> None:
    world, pipeline = quiet.world, quiet.pipeline
    loaded = LinesPipeline("told", new_topic(world))
    world.add(loaded)
    send_lines(world, loaded.topic, [datetime.now(UTC)])
    run_id = world.run(loaded)
    waiting = "SELECT run_id FROM kafka_ingest.batch WHERE pipeline = %s AND announced_at IS NULL"

    def is_stored() -> bool:
        return all(world.ask(waiting, name) == [] for name in (pipeline.name, loaded.name))

    # The callback runs after the task's success, so the run may have ended a moment before.
    until(is_stored, "the ledger has the batches as announced", 60)
    [event] = world.airflow.asset_events(source_dag_id=loaded.dag_id)
    assert (event["source_run_id"], event["extra"]["rows"]) == (run_id, 1)
    assert world.airflow.asset_events(source_dag_id=pipeline.dag_id) == []


def test_c29_an_open_transaction_is_told_by_a_green_run_and_its_records_come_once_when_it_ends(quiet: Quiet) -> None:
    world, pipeline = quiet.world, quiet.pipeline
    settings = {"transactional.id": pipeline.topic, "transaction.timeout.ms": 900_000}
    producer = Producer({"bootstrap.servers": world.bootstrap, **settings})
    producer.init_transactions(KAFKA_SECONDS)
    producer.begin_transaction()
    for offset in range(3):
        producer.produce(pipeline.topic, f"record {offset}".encode(), partition=0)
    assert producer.flush(KAFKA_SECONDS) == 0

    waiting = world.run(pipeline)
    assert world.committed(pipeline) == []
    [warning] = world.airflow.xcom(pipeline.dag_id, waiting, "plan_batch")["warnings"]
    assert warning.startswith(f"{pipeline.topic}[0]: an open producer transaction holds back 3 offsets")

    producer.commit_transaction(KAFKA_SECONDS)
    loading = world.run(pipeline)
    # Three records and the marker of the transaction.
    assert world.committed(pipeline) == [(loading, 0, "live", 0, 4, 4)]
    require_lines_once(world, pipeline, range(3))
