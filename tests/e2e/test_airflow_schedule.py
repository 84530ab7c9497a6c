"""A schedule that makes up for an outage of days: each run takes its own day, and keeps what it took.

The topic has two records in each of the first three of four days that have ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.deadlines import until
from tests.e2e.airflow_world import AirflowWorld
from tests.e2e.lines_pipeline import DAY, LinesPipeline, new_topic, require_lines_once, send_lines, today, two_each

# Several runs with Spark, one after another, take minutes: make test-airflow and make test-all run them.
pytestmark = pytest.mark.slow

OPTIONS = """\
schedule: "@daily"
start_date: "{start}"
end: interval
catchup: true"""


@dataclass(frozen=True)
class CaughtUp:
    """The pipeline after its first four runs, and these by their data intervals."""

    world: AirflowWorld
    pipeline: LinesPipeline
    runs: tuple[dict[str, Any], ...]

    def run_id(self, day: int) -> str:
        return str(self.runs[day]["dag_run_id"])


@pytest.fixture(scope="module")
def caught_up(world: AirflowWorld) -> CaughtUp:
    start, topic = today() - 4 * DAY, new_topic(world)
    pipeline = LinesPipeline("caught_up", topic, OPTIONS.format(start=start.date().isoformat()))
    send_lines(world, topic, two_each(start, DAY, 3))
    world.add(pipeline)

    def ended() -> list[dict[str, Any]]:
        return [run for run in world.airflow.runs(pipeline.dag_id) if run["state"] in ("success", "failed")]

    until(lambda: len(ended()) >= 4, "four days are made up for", 600)
    runs = sorted(ended(), key=lambda run: str(run["data_interval_start"]))
    assert [(run["state"], moment(run["data_interval_end"])) for run in runs[:4]] == [
        ("success", start + number * DAY) for number in (1, 2, 3, 4)
    ]
    return CaughtUp(world, pipeline, tuple(runs))


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def test_each_run_after_an_outage_takes_its_own_day_in_order(caught_up: CaughtUp) -> None:
    world, run_id = caught_up.world, caught_up.run_id
    assert world.committed(caught_up.pipeline) == [
        (run_id(0), 0, "live", 0, 2, 2),
        (run_id(1), 0, "live", 2, 4, 4),
        (run_id(2), 0, "live", 4, 6, 6),
    ]
    require_lines_once(world, caught_up.pipeline, range(6))


def test_c42_a_run_of_a_day_without_records_is_green_and_starts_no_spark(caught_up: CaughtUp) -> None:
    log = caught_up.world.airflow.task_log(caught_up.pipeline.dag_id, caught_up.run_id(3), "load_batch", 1)
    assert "there is nothing to read, Spark is not started" in log


def test_c31_a_manual_run_without_any_date_takes_the_days_that_had_ended_when_it_was_made(caught_up: CaughtUp) -> None:
    world, pipeline = caught_up.world, caught_up.pipeline
    late, fresh = today() - DAY / 2, datetime.now(UTC)
    send_lines(world, pipeline.topic, [late, fresh], first_offset=6)
    run_id = world.run(pipeline)
    run = world.airflow.run(pipeline.dag_id, run_id)
    assert (run["logical_date"], run["data_interval_start"], run["data_interval_end"]) == (None, None, None)
    # The fresh record's day has not ended, unless it ended between sending and the run.
    end = 8 if moment(run["run_after"]).date() > fresh.date() else 7
    assert world.committed(pipeline)[-1] == (run_id, 0, "live", 6, end, end)
    require_lines_once(world, pipeline, range(end))


def test_c07_clearing_an_old_run_after_new_records_loads_nothing_under_its_name(caught_up: CaughtUp) -> None:
    world, pipeline, run_id = caught_up.world, caught_up.pipeline, caught_up.run_id(1)
    before = world.committed(pipeline)
    world.airflow.clear(pipeline.dag_id, run_id)
    world.require_success(pipeline, run_id)
    assert world.committed(pipeline) == before
    assert "was loaded before" in world.airflow.task_log(pipeline.dag_id, run_id, "load_batch", 2)
