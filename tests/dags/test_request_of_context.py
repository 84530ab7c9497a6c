"""Which request a task instance stands for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.api.datamodels._generated import DagRunType

from kafka_ingest.errors import ConfigError
from kafka_ingest.operators.context import planning_request_of, request_of
from kafka_ingest.protocol.batch import Request, RunMode, RunOptions, TimeSpan, run_options_of
from kafka_ingest.settings import PipelineSettings, RunEnd
from tests.builders import pipeline_settings
from tests.dags.contexts import TaskInstance, run_context, task_context

if TYPE_CHECKING:
    from airflow.sdk import Context


def context(task_id: str, **changed: Any) -> Context:
    return task_context(TaskInstance(task_id, **changed))


def test_a_manual_run_without_any_date_is_a_request() -> None:
    assert request_of(context("plan_batch")) == Request("orders", "manual__1")


def test_plan_load_and_audit_of_a_run_are_one_request() -> None:
    requests = {request_of(context(task)) for task in ("plan_batch", "load_batch", "audit_batch")}
    assert len(requests) == 1


def test_a_retry_is_the_same_request() -> None:
    assert request_of(context("load_batch", try_number=4)) == request_of(context("load_batch"))


def test_tasks_of_a_group_are_a_request_of_their_own() -> None:
    assert request_of(context("eu.shop.load_batch")).task_group == "eu.shop"
    assert request_of(context("eu.shop.load_batch")) != request_of(context("us.shop.load_batch"))


def test_each_mapped_task_is_a_request_of_its_own() -> None:
    assert request_of(context("load_batch", map_index=2)).map_index == 2
    assert request_of(context("load_batch", map_index=None)).map_index == -1


def test_another_run_is_another_request() -> None:
    assert request_of(context("load_batch", run_id="manual__2")) != request_of(context("load_batch"))


def pipeline(end: RunEnd = RunEnd.HEAD, schedule: str | None = "@hourly") -> PipelineSettings:
    settings = pipeline_settings()
    return replace(settings, schedule=replace(settings.schedule, schedule=schedule, timezone="Europe/Berlin", end=end))


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 1, 1, hour, minute, tzinfo=UTC)


def scheduled(**run: Any) -> Context:
    return run_context(DagRunType.SCHEDULED, data_interval_start=at(11), data_interval_end=at(12), **run)


def backfilled(**run: Any) -> Context:
    return run_context(DagRunType.BACKFILL, data_interval_start=at(3), data_interval_end=at(4), **run)


def asked(found: Context, settings: PipelineSettings, *, has_form: bool = True) -> RunOptions:
    return run_options_of(planning_request_of(found, settings, has_form=has_form))


NEW_YEAR_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
HOUR_MS = 3_600_000


@pytest.mark.parametrize("run_type", [t for t in DagRunType if t is not DagRunType.BACKFILL])
def test_every_run_but_a_backfill_is_live_and_reads_to_the_head(run_type: DagRunType) -> None:
    assert planning_request_of(run_context(run_type), pipeline(), has_form=True) == Request("orders", "manual__1")


def test_an_interval_bounds_a_scheduled_run() -> None:
    assert asked(scheduled(), pipeline(RunEnd.INTERVAL)) == RunOptions(until_ms=NEW_YEAR_MS + 12 * HOUR_MS)


@pytest.mark.parametrize(
    ("run_after", "end_hour"), [(at(12, 20), 12), (at(12), 12), (at(11, 59), 11)], ids=["between", "at", "before"]
)
def test_a_run_without_a_data_interval_takes_the_last_one_that_had_ended(run_after: datetime, end_hour: int) -> None:
    options = asked(run_context(run_after=run_after), pipeline(RunEnd.INTERVAL))
    assert options == RunOptions(until_ms=NEW_YEAR_MS + end_hour * HOUR_MS)


def test_a_bound_of_the_form_goes_before_the_interval() -> None:
    conf = {"to": "2026-01-01T05:00:00Z"}
    assert asked(run_context(conf=conf), pipeline(RunEnd.INTERVAL)).until_ms == NEW_YEAR_MS + 5 * HOUR_MS


def test_a_reload_is_not_bounded_by_the_interval() -> None:
    conf = {"mode": "reload", "from": "2026-01-01 03:00", "reason": "a bug"}
    options = asked(run_context(conf=conf), pipeline(RunEnd.INTERVAL))
    assert options == RunOptions(RunMode.RELOAD, times=TimeSpan(NEW_YEAR_MS + 2 * HOUR_MS), reason="a bug")


def test_plan_only_shows_what_a_run_of_the_same_moment_would_read() -> None:
    options = asked(run_context(conf={"mode": "plan_only"}), pipeline(RunEnd.INTERVAL))
    assert options == RunOptions(RunMode.PLAN_ONLY, until_ms=NEW_YEAR_MS + 12 * HOUR_MS)


@pytest.mark.parametrize("end", RunEnd)
def test_a_backfill_run_reloads_its_interval_and_says_how_often_it_was_cleared(end: RunEnd) -> None:
    request = planning_request_of(backfilled(clear_number=2), pipeline(end), has_form=True)
    span = TimeSpan(NEW_YEAR_MS + 3 * HOUR_MS, NEW_YEAR_MS + 4 * HOUR_MS)
    assert run_options_of(request) == RunOptions(RunMode.RELOAD, times=span)
    assert (request.clear_number, request.number) == (2, 0)


def test_clearing_any_other_run_asks_for_the_batch_that_it_has() -> None:
    first = planning_request_of(scheduled(), pipeline(), has_form=True)
    assert planning_request_of(scheduled(clear_number=3), pipeline(), has_form=True) == first


def test_a_backfill_can_be_told_to_reload_what_is_left() -> None:
    conf = {"reload_what_is_left": True, "reason": "retention took the first hours"}
    options = asked(backfilled(conf=conf), pipeline())
    assert (options.reload_what_is_left, options.reason) == (True, "retention took the first hours")


def test_a_backfill_without_intervals_stops() -> None:
    with pytest.raises(ConfigError, match="no data interval"):
        asked(run_context(DagRunType.BACKFILL), pipeline())


def test_faults_of_the_form_stop_the_run() -> None:
    with pytest.raises(ConfigError) as caught:
        asked(run_context(conf={"mode": "reload", "colour": "red"}), pipeline())
    assert [line.partition(":")[0] for line in caught.value.found.splitlines()] == ["colour", "From (time)", "Reason"]


def test_in_a_dag_of_somebody_else_the_conf_is_theirs() -> None:
    found = run_context(conf={"mode": "turbo", "region": "eu"})
    assert asked(found, pipeline(), has_form=False) == RunOptions()
    assert asked(backfilled(conf={"region": "eu"}), pipeline(), has_form=False).mode is RunMode.RELOAD


def test_the_request_does_not_depend_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    before = planning_request_of(run_context(), pipeline(RunEnd.INTERVAL), has_form=True)
    monkeypatch.setattr("airflow.timetables.interval.utcnow", lambda: datetime(2030, 1, 1, tzinfo=UTC))
    assert planning_request_of(run_context(), pipeline(RunEnd.INTERVAL), has_form=True) == before
