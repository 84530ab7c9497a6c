"""Runs of one pipeline in a running Airflow: scheduled with a limit, followed up, by the form, backfilled, cleared.

The tests go on where the ones before them left table and position. The topic has one partition with two records in each
of three hours that have ended; the pipeline reads three offsets a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from sandbox.airflow_client import AirflowClient
from tests.deadlines import until
from tests.e2e.airflow_world import AirflowWorld
from tests.e2e.lines_pipeline import (
    DAY,
    HOUR,
    LinesPipeline,
    new_topic,
    require_lines_once,
    send_lines,
    this_hour,
    two_each,
)

# Seven Spark jobs, one after another, take minutes: make test-all and make test-airflow run these.
pytestmark = pytest.mark.slow

DAG_ID = "kafka_to_postgres__hours"
OPTIONS = """\
schedule: "@hourly"
start_date: "{start_date}"
end: interval
limit: {{offsets_per_run: 3}}"""
HOURS, RECORDS = 3, 6
SKIPPED = dict.fromkeys(("plan_batch", "load_batch", "audit_batch", "follow_up"), "skipped")


@dataclass(frozen=True)
class Hours:
    """The pipeline of this module."""

    world: AirflowWorld
    pipeline: LinesPipeline
    first_hour: datetime

    @property
    def airflow(self) -> AirflowClient:
        return self.world.airflow

    def hour(self, number: int) -> str:
        return (self.first_hour + timedelta(hours=number)).isoformat()

    def batches(self) -> list[tuple[object, ...]]:
        return self.world.committed(self.pipeline)

    def require_every_record_once(self) -> None:
        require_lines_once(self.world, self.pipeline, range(RECORDS))

    def finish(self, run_id: str, state: str = "success") -> None:
        self.world.require_end(DAG_ID, run_id, state)

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
def hours(world: AirflowWorld) -> Hours:
    # The hour before the current one may end while records are sent: all three have ended for certain.
    first_hour, topic = this_hour() - (HOURS + 1) * HOUR, new_topic(world)
    pipeline = LinesPipeline("hours", topic, OPTIONS.format(start_date=first_hour.date() - DAY))
    send_lines(world, topic, two_each(first_hour, HOUR, HOURS))
    world.add(pipeline)
    return Hours(world, pipeline, first_hour)


@pytest.fixture(scope="module")
def drained(hours: Hours) -> list[str]:
    """The first scheduled run and those that followed it."""
    until(lambda: len(hours.batches()) == RECORDS // 3, "follow-ups drain the backlog", 600)
    until(lambda: not unfinished(hours), "every run has ended", 300)
    return [str(run) for run, *_ in hours.batches()]


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
        "SELECT run_id, parameters::jsonb ->> 'until_ms' FROM kafka_ingest.batch WHERE pipeline = 'hours'"
        " ORDER BY ordinal LIMIT 2"
    )
    assert [run for run, _ in rows] == drained
    assert rows[0][1] == rows[1][1]
    assert rows[0][1] is not None


def test_clearing_the_task_that_follows_up_starts_no_second_run(hours: Hours, drained: list[str]) -> None:
    runs = {run["dag_run_id"] for run in hours.airflow.runs(DAG_ID)}
    hours.airflow.clear(DAG_ID, drained[0], ["follow_up"])
    hours.finish(drained[0])
    assert hours.airflow.task_states(DAG_ID, drained[0])["follow_up"] == "skipped"
    new = {run["dag_run_id"] for run in hours.airflow.runs(DAG_ID)} - runs
    assert [run for run in new if run.startswith("follow_up__")] == []


def test_a_task_of_an_old_run_that_is_marked_failed_and_cleared_finds_its_batch_loaded(
    hours: Hours, drained: list[str]
) -> None:
    before = hours.batches()
    hours.airflow.mark_task(DAG_ID, drained[0], "load_batch", "failed")
    hours.airflow.clear(DAG_ID, drained[0], ["plan_batch", "load_batch", "audit_batch", "follow_up"])
    hours.world.wait_for_success(hours.pipeline, drained[0])
    assert hours.batches() == before
    hours.require_every_record_once()


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
    assert all(f"{label}: expected" in log for label in ("colour", "From (time)", "Reason", "Limit (offsets)"))


def test_a_reload_by_the_form_replaces_its_span(hours: Hours, drained: list[str]) -> None:
    hours.world.ask("UPDATE shop.hours SET line = 'spoilt' WHERE kafka_offset IN (4, 5)")
    conf = {"mode": "reload", "from": hours.hour(2), "reason": "two rows were spoilt"}
    run_id = hours.airflow.trigger(DAG_ID, conf=conf)
    hours.finish(run_id)
    assert hours.batches()[-1] == (run_id, 0, "reload", 4, 6, 6)
    hours.require_every_record_once()


def test_a_reload_by_offsets_replaces_just_these(hours: Hours, drained: list[str]) -> None:
    hours.world.ask("UPDATE shop.hours SET line = 'spoilt' WHERE kafka_offset IN (1, 2)")
    form = {"mode": "reload", "offsets": f"{hours.pipeline.topic} 0 1 3", "reason": "two rows were spoilt"}
    run_id = hours.world.run(hours.pipeline, **form)
    assert hours.batches()[-1] == (run_id, 0, "reload", 1, 3, 6)
    summary = hours.airflow.xcom(DAG_ID, run_id, "load_batch")
    assert (summary["span_offsets"], summary["replaced_offsets"]) == (2, 2)
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
