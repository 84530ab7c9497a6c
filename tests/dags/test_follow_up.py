"""The task that starts the next run at once, as Airflow's own trigger operator does."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import Any
from unittest.mock import create_autospec

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException, DagRunTriggerException, DownstreamTasksSkipped
from airflow.sdk.execution_time.comms import TriggerDagRun

from kafka_ingest.forms.run import run_options
from kafka_ingest.operators.dags import pipeline_dag
from kafka_ingest.operators.tasks import FollowUpOperator
from kafka_ingest.protocol.batch import Batch, BatchState, RunOptions
from kafka_ingest.protocol.ports import Ledger
from kafka_ingest.settings import OffsetLimit, PipelineSettings
from tests.builders import REQUEST, offset_range, pipeline_settings, planned_batch
from tests.dags.all_fakes import FakeSystem
from tests.dags.contexts import OutletEvents, TaskInstance, run_context, task_context
from tests.dags.replaced_world import replace_world

CUT = planned_batch(offset_range(0, 0, 10), state=BatchState.COMMITTED)
HOUR = RunOptions(until_ms=1_767_225_600_000)


def settings(limit: int = 10, *, follow_up: bool = True) -> PipelineSettings:
    found = pipeline_settings()
    plan = replace(found.plan, limit=OffsetLimit(limit))
    return replace(found, plan=plan, schedule=replace(found.schedule, follow_up=follow_up))


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> dict[str, Batch | None]:
    """The batch of the run, for a test to change."""
    found: dict[str, Batch | None] = {"batch": CUT}
    ledger = create_autospec(Ledger, instance=True)
    ledger.batch_of.side_effect = lambda *_: found["batch"]
    replace_world(monkeypatch, ledger=lambda: ledger)
    return found


def triggered(limit: int = 10) -> DagRunTriggerException:
    task = FollowUpOperator(task_id="follow_up", pipeline=settings(limit))
    with pytest.raises(DagRunTriggerException) as caught:
        task.execute(task_context(TaskInstance("follow_up")))
    return caught.value


def test_a_run_that_was_cut_triggers_one_of_the_same_dag(own: dict[str, Batch | None]) -> None:
    asked = triggered()
    assert (asked.trigger_dag_id, asked.dag_run_id, asked.conf) == ("orders", f"follow_up__{CUT.batch_id}", {})
    assert asked.logical_date is None
    assert not asked.wait_for_completion


def test_the_run_says_in_its_note_why_it_is_there_where_airflow_has_notes(own: dict[str, Batch | None]) -> None:
    asked = triggered(limit=10)
    has_notes = "note" in signature(DagRunTriggerException).parameters
    told = "Goes on where run manual__1 stopped: it had used up its limit of 10 offsets." if has_notes else None
    assert getattr(asked, "note", None) == told


def test_trying_again_triggers_no_second_run(own: dict[str, Batch | None]) -> None:
    first, second = triggered(), triggered()
    assert first.dag_run_id == second.dag_run_id
    assert second.skip_when_already_exists
    assert not second.reset_dag_run


def test_the_form_of_a_follow_up_is_read_as_the_bound_that_it_came_from(own: dict[str, Batch | None]) -> None:
    own["batch"] = replace(CUT, request=replace(REQUEST, parameters=HOUR.to_parameters()))
    conf = triggered().conf
    assert conf is not None
    assert run_options(conf, zone="Europe/Berlin", pipeline="orders") == HOUR


def test_a_follow_up_after_a_reset_goes_on_with_what_the_run_was_told(own: dict[str, Batch | None]) -> None:
    told = RunOptions(reload_what_is_left=True, replace_resolved=True, reason="compacted")
    own["batch"] = replace(CUT, request=replace(REQUEST, parameters=told.to_parameters()))
    conf = triggered().conf
    assert conf is not None
    assert run_options(conf, zone="Europe/Berlin", pipeline="orders") == told


def test_airflow_can_be_asked_for_it(own: dict[str, Batch | None]) -> None:
    """The message that Airflow's task runner makes of the exception (``_handle_trigger_dag_run``, Task SDK 1.3)."""
    asked = triggered()
    message = TriggerDagRun(dag_id=asked.trigger_dag_id, run_id=asked.dag_run_id, conf=asked.conf, reset_dag_run=False)
    assert message.logical_date is None


@pytest.mark.parametrize("batch", [None, planned_batch(offset_range(0, 0, 10))])
def test_nothing_follows_a_run_that_was_not_loaded(own: dict[str, Batch | None], batch: Batch | None) -> None:
    own["batch"] = batch
    with pytest.raises(AirflowSkipException):
        FollowUpOperator(task_id="follow_up", pipeline=settings()).execute(task_context(TaskInstance("follow_up")))


def test_nothing_follows_a_run_that_the_limit_did_not_cut(own: dict[str, Batch | None]) -> None:
    with pytest.raises(AirflowSkipException, match="No run follows: its 10 offsets are below the limit of 11"):
        FollowUpOperator(task_id="follow_up", pipeline=settings(11)).execute(task_context(TaskInstance("follow_up")))


def test_the_task_comes_after_the_audit_and_can_be_switched_off() -> None:
    dag = pipeline_dag(settings())
    assert dag.task_ids == ["plan_batch", "load_batch", "audit_batch", "follow_up"]
    assert dag.get_task("follow_up").upstream_task_ids == {"audit_batch"}
    assert pipeline_dag(settings(follow_up=False)).task_ids == ["plan_batch", "load_batch", "audit_batch"]


@pytest.mark.parametrize(("limit", "skipped"), [(10, []), (11, ["follow_up"])])
def test_the_audit_of_a_run_that_the_limit_did_not_cut_skips_the_task_and_keeps_its_own_result(
    monkeypatch: pytest.MonkeyPatch, limit: int, skipped: list[str]
) -> None:
    system = FakeSystem()
    system.settings = settings(limit)
    system.install(monkeypatch)
    for _ in range(10):
        system.log.append("orders", b"1")
    system.plan_and_load("run")
    audit: Any = pipeline_dag(system.settings).get_task("audit_batch")
    ti = TaskInstance("audit_batch", run_id="run")
    context: Any = {**run_context(ti=ti), "outlet_events": OutletEvents(), "task": audit}
    found: list[str] = []
    try:
        result = audit.execute(context)
    except DownstreamTasksSkipped as request:
        found, result = request.tasks, ti.xcoms["return_value"]
    assert found == skipped
    assert result["counts"]["rows"] == 10
