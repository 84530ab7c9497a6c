"""Airflow's backfills: forwards, backwards, reprocessed, many runs at once, and where Kafka no longer holds all of it.

Each topic has two records in each of some days. The first scheduled run is due tomorrow: only the tests load.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from sandbox.paths import tool
from tests.deadlines import until
from tests.e2e.airflow_world import AirflowWorld
from tests.e2e.lines_pipeline import DAY, LinesPipeline, new_topic, require_lines_once, send_lines, today, two_each

# A dozen runs with Spark, one after another, take minutes: make test-airflow and make test-all run them.
pytestmark = pytest.mark.slow

SECONDS = 800.0


@dataclass(frozen=True)
class Days:
    """A pipeline whose topic has offsets 2n and 2n + 1 in day n."""

    world: AirflowWorld
    pipeline: LinesPipeline
    first_day: datetime
    count: int

    def backfill(self, **options: Any) -> int:
        """Starts a backfill of all days and gives its id."""
        span = {"from_date": self.day(0).isoformat(), "to_date": self.day(self.count - 1).isoformat()}
        body = {"dag_id": self.pipeline.dag_id, "max_active_runs": 1, **span, **options}
        return int(self.world.airflow.call("POST", "/backfills", body)["id"])

    def finish(self, backfill: int) -> list[str]:
        """Waits for a backfill and gives the states of the days' runs, by day."""
        path = f"/backfills/{backfill}"
        until(lambda: self.world.airflow.call("GET", path)["completed_at"] is not None, "the backfill ends", SECONDS)
        return [str(run["state"]) for run in self.runs()]

    def runs(self) -> list[dict[str, Any]]:
        dated = [run for run in self.world.airflow.runs(self.pipeline.dag_id) if run["logical_date"]]
        return sorted(dated, key=lambda run: str(run["logical_date"]))

    def run_id(self, day: int) -> str:
        return str(self.runs()[day]["dag_run_id"])

    def day(self, number: int) -> datetime:
        return self.first_day + number * DAY

    def summary(self, day: int) -> dict[str, Any]:
        """Return what the run of a day says about its batch."""
        found: dict[str, Any] = self.world.airflow.xcom(self.pipeline.dag_id, self.run_id(day), "load_batch")
        return found

    def require_every_line_once(self) -> None:
        require_lines_once(self.world, self.pipeline, range(2 * self.count))


def days_of(world: AirflowWorld, name: str, count: int) -> Days:
    """Fills a topic; the pipeline is not added yet."""
    first_day, topic = today() - (count + 1) * DAY, new_topic(world)
    send_lines(world, topic, two_each(first_day, DAY, count))
    options = f'schedule: "@daily"\nstart_date: "{today().date().isoformat()}"'
    return Days(world, LinesPipeline(name, topic, options), first_day, count)


@dataclass(frozen=True)
class Started:
    """Three pipelines whose first loads are under way, at the same time, since they need not wait for each other."""

    ahead: Days
    ahead_backfill: int
    backwards: Days
    expired: Days
    expired_run: str


@pytest.fixture(scope="module")
def started(world: AirflowWorld) -> Started:
    ahead, backwards, expired = (
        days_of(world, name, count) for name, count in (("backfilled", 3), ("backwards", 3), ("expired", 4))
    )
    world.add(ahead.pipeline, backwards.pipeline, expired.pipeline)
    backfill = ahead.backfill(reprocess_behavior="none")
    run_id = world.start_run(expired.pipeline)
    create_backwards(backwards)
    return Started(ahead, backfill, backwards, expired, run_id)


@pytest.fixture(scope="module")
def ahead(started: Started) -> Days:
    """A backfill of three days that nothing had loaded yet, one run after the other."""
    assert started.ahead.finish(started.ahead_backfill) == ["success"] * 3
    return started.ahead


def test_a_backfill_of_days_above_the_position_loads_each_and_moves_the_position(ahead: Days) -> None:
    assert ahead.world.committed(ahead.pipeline) == [
        (ahead.run_id(0), 0, "reload", 0, 2, 2),
        (ahead.run_id(1), 0, "reload", 2, 4, 4),
        (ahead.run_id(2), 0, "reload", 4, 6, 6),
    ]
    summary, topic = ahead.summary(1), ahead.pipeline.topic
    assert (summary["kind"], summary["ranges"]) == ("reload", {topic: {"0": [2, 4]}})
    assert (summary["span_offsets"], summary["replaced_offsets"]) == (2, 0)
    assert summary["committed_offsets"] == {topic: {"0": 4}}
    ahead.require_every_line_once()


def test_a_backfill_of_days_that_have_runs_leaves_them_alone_by_default(ahead: Days) -> None:
    before = ahead.world.committed(ahead.pipeline)
    assert ahead.finish(ahead.backfill(reprocess_behavior="none")) == ["success"] * 3
    assert ahead.world.committed(ahead.pipeline) == before


def test_c07_completed_runs_that_are_reprocessed_at_once_replace_each_day_once(ahead: Days) -> None:
    """Three runs at once: the ledger takes one after the other, in any order."""
    world, pipeline = ahead.world, ahead.pipeline
    before = world.committed(pipeline)
    world.ask("UPDATE shop.backfilled SET line = 'spoilt' WHERE kafka_offset IN (1, 2, 5)")
    backfill = ahead.backfill(reprocess_behavior="completed", max_active_runs=3)
    assert ahead.finish(backfill) == ["success"] * 3
    again = world.committed(pipeline)[len(before) :]
    assert sorted(again, key=lambda load: load[3]) == [
        (ahead.run_id(0), 1, "reload", 0, 2, 6),
        (ahead.run_id(1), 1, "reload", 2, 4, 6),
        (ahead.run_id(2), 1, "reload", 4, 6, 6),
    ]
    assert [ahead.summary(day)["replaced_offsets"] for day in range(3)] == [2, 2, 2]
    ahead.require_every_line_once()


def test_a_backfill_that_runs_backwards_leaves_no_gap_and_loads_every_record_once(
    world: AirflowWorld, started: Started
) -> None:
    """The newest day comes first and takes along what lies before it; the others replace their own days."""
    days = started.backwards
    until(lambda: len(days.runs()) == 3, "the backfill's runs are there", SECONDS)
    for day in range(3):
        world.require_success(days.pipeline, days.run_id(day))
    assert world.committed(days.pipeline) == [
        (days.run_id(2), 0, "reload", 0, 6, 6),
        (days.run_id(1), 0, "reload", 2, 4, 6),
        (days.run_id(0), 0, "reload", 0, 2, 6),
    ]
    days.require_every_line_once()


def test_c11_backfilled_days_that_retention_has_taken_stop_and_are_reloaded_in_part_when_told(
    world: AirflowWorld, started: Started
) -> None:
    """Offsets below 5 are gone: two days wholly, the third by half; the fourth is whole."""
    days = started.expired
    world.require_success(days.pipeline, started.expired_run)
    world.ask("UPDATE shop.expired SET line = 'spoilt' WHERE kafka_offset IN (5, 7)")
    whole = world.ask("SELECT kafka_offset, line FROM shop.expired WHERE kafka_offset <= 5 ORDER BY 1")
    delete_records_below(world, days.pipeline.topic, 5)

    assert days.finish(days.backfill(reprocess_behavior="none")) == ["failed", "failed", "failed", "success"]
    for day in (0, 1, 2):
        task = world.airflow.task(days.pipeline.dag_id, days.run_id(day), "plan_batch")
        log = world.airflow.task_log(days.pipeline.dag_id, days.run_id(day), "plan_batch", 1)
        assert (task["state"], task["try_number"]) == ("failed", 1)
        assert "OffsetsExpired" in log
        assert "log start offset 5" in log
    assert world.ask("SELECT kafka_offset, line FROM shop.expired WHERE kafka_offset <= 5 ORDER BY 1") == whole
    assert [load[2:] for load in world.committed(days.pipeline)] == [("live", 0, 8, 8), ("reload", 6, 8, 8)]

    told = {"reload_what_is_left": True, "reason": "what retention took stays as it is"}
    backfill = days.backfill(reprocess_behavior="failed", dag_run_conf=told)
    assert days.finish(backfill) == ["success"] * 4
    assert [load[2:] for load in world.committed(days.pipeline)][2:] == [("reload", 5, 6, 8)]
    days.require_every_line_once()


def create_backwards(days: Days) -> None:
    """Starts a backfill that runs backwards, with Airflow's own command."""
    span = ("--from-date", days.day(0).isoformat(), "--to-date", days.day(days.count - 1).isoformat())
    options = ("--run-backwards", "--max-active-runs", "1")
    server = days.world.server
    done = subprocess.run(
        [tool("airflow"), "backfill", "create", "--dag-id", days.pipeline.dag_id, *span, *options],
        env=server.environment(),
        cwd=server.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]


def delete_records_below(world: AirflowWorld, topic: str, offset: int) -> None:
    place = TopicPartition(topic, 0, offset)
    admin = AdminClient({"bootstrap.servers": world.bootstrap})  # it must live until the answer is there
    [deleted] = admin.delete_records([place]).values()
    deleted.result(30)
