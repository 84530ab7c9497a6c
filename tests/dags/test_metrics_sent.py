"""What the operators send through Airflow's stats, at the backend where StatsD, Datadog or OpenTelemetry would be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
    Stats,
)

from kafka_ingest.errors import DatabaseUnavailable, TargetMismatch
from kafka_ingest.metrics import METRICS, MetricKind
from kafka_ingest.operators.tasks import (
    AuditBatchOperator,
    FollowUpOperator,
    LoadBatchOperator,
    PlanBatchOperator,
    ReportLeftOutOperator,
)
from kafka_ingest.protocol.batch import Batch, Request
from kafka_ingest.protocol.decisions import NewPlan
from kafka_ingest.protocol.ledger_view import PlanView
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import TargetSettings
from tests.dags.all_fakes import FakeSystem
from tests.dags.contexts import OutletEvents, TaskInstance, run_context
from tests.fakes.ledger import FakeLedger
from tests.fakes.publisher import CommitAnswer

COUNTERS = (
    "batches",
    "rows",
    "deletes",
    "superseded",
    "dead_letters",
    "tombstones",
    "filtered",
    "invisible_offsets",
)


@dataclass
class Recorder:
    """A stats backend that keeps what it gets: kind, name, value and tags."""

    sent: list[tuple[MetricKind, str, float, dict[str, str]]] = field(default_factory=list)

    def incr(self, stat: str, count: int = 1, rate: float = 1, *, tags: dict[str, str]) -> None:
        self.sent.append((MetricKind.COUNTER, stat, count, tags))

    def gauge(self, stat: str, value: float, rate: float = 1, delta: bool = False, *, tags: dict[str, str]) -> None:
        """As StatsD: a change is added to what was sent before."""
        before = [known for kind, name, known, of in self.sent if (name, of) == (stat, tags)] if delta else []
        self.sent.append((MetricKind.GAUGE, stat, value + (before[-1] if before else 0), tags))

    def timing(self, stat: str, dt: float, *, tags: dict[str, str]) -> None:
        self.sent.append((MetricKind.TIMER, stat, dt, tags))

    def values(self, name: str, **tags: str) -> list[float]:
        wanted = {"pipeline": "orders", **tags}
        return [value for _, stat, value, found in self.sent if stat == f"kafka_ingest.{name}" and found == wanted]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    found: Any = Recorder()
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    try:
        from airflow.sdk.observability import stats
    except ModuleNotFoundError:  # Airflow 3.1
        monkeypatch.setattr(Stats, "instance", found)
        yield found
        return
    stats.initialize(factory=lambda: found, export_legacy_names=True)
    yield found
    stats.initialize(factory=None, export_legacy_names=True)  # type: ignore[arg-type]  # as before Airflow sets one


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> FakeSystem:
    system = FakeSystem()
    system.install(monkeypatch)
    return system


def test_a_run_sends_what_it_read_and_what_is_left(system: FakeSystem, recorder: Recorder) -> None:
    plan = replace(system.settings.plan, limit=replace(system.settings.plan.limit, total_offsets=4))
    system.settings = replace(system.settings, plan=plan)
    system.log.append("orders", b"1", b"bad", b"3", b"4", b"5", b"6")
    system.run("run-1")
    assert recorder.values("lag_offsets", topic="orders") == [6, 2]  # after the plan, after the audit
    assert [recorder.values(name) for name in COUNTERS] == [[1], [3], [0], [0], [1], [0], [0], [0]]
    assert [len(recorder.values("step_duration", step=step)) for step in ("plan", "load", "audit")] == [1, 1, 1]


def test_headroom_is_sent_as_the_plan_found_it(system: FakeSystem, recorder: Recorder) -> None:
    system.settings = replace(system.settings, watch=replace(system.settings.watch, min_headroom_offsets=3))
    system.log.append("orders", *[b"x"] * 10)
    system.run("run-1")
    system.log.append("orders", *[b"x"] * 10)
    system.log.delete_records("orders", 0, before=8)
    system.log.begin("orders", b"open", partition=1)
    extra = system.run("run-2")
    assert recorder.values("headroom_offsets", topic="orders") == [0, 0]  # partition 1 has not been read yet
    assert recorder.values("short_headroom_partitions") == [0, 1]  # retention is 2 behind 10 in partition 0
    assert recorder.values("stalled_partitions") == [0, 1]  # partition 1
    assert [text.split(" ")[0] for text in extra["warnings"]] == ["orders[0]:", "orders[1]:"]


def test_a_batch_is_counted_once_however_often_it_is_audited(system: FakeSystem, recorder: Recorder) -> None:
    system.log.append("orders", b"1", b"2")
    system.run("run-1")
    system.audit("run-1")
    assert recorder.values("rows") == [2]


def test_all_that_is_sent_is_defined_and_all_that_is_defined_is_sent(system: FakeSystem, recorder: Recorder) -> None:
    system.log.append("orders", b"1", b"2")
    system.run("run-1")
    # As if the plan before had been two hours ago: less than an hour tells no rate.
    for key, seen in system.database.observations.items():
        system.database.observations[key] = replace(seen, rate_from_at=seen.rate_from_at - timedelta(hours=2))
    system.log.append("orders", b"3")
    system.log.delete_records("orders", 0, before=1)
    system.run("run-2")
    system.job_fault = TargetMismatch("the target refused the batch")
    system.log.append("orders", b"4")
    with pytest.raises(AirflowFailException):
        system.run("run-3")
    defined = {(m.kind, m.name, ("pipeline", *m.tags)) for m in METRICS}
    assert {(kind, name, tuple(tags)) for kind, name, _, tags in recorder.sent} == defined


def test_a_ledger_that_cannot_be_read_for_metrics_fails_no_task(
    system: FakeSystem, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    system.log.append("orders", b"1")
    system.plan_and_load("run-1")
    sent = len(recorder.sent)

    def plan_view(*_: Any) -> Any:
        raise DatabaseUnavailable("PostgreSQL cannot be reached")

    monkeypatch.setattr(system.ledger, "plan_view", plan_view)
    system.audit("run-1")
    assert "Lag and headroom are not sent" in caplog.text
    told = {name for _, name, _, _ in recorder.sent[sent:]}
    assert {"kafka_ingest.last_success_timestamp_seconds", "kafka_ingest.step_duration", "kafka_ingest.rows"} <= told
    assert "kafka_ingest.lag_offsets" not in told


def load(system: FakeSystem, run_id: str, *, try_number: int, max_tries: int = 1) -> None:
    """One try of the load of a run, as Airflow numbers it."""
    ti = TaskInstance("load_batch", run_id=run_id, try_number=try_number, max_tries=max_tries)
    LoadBatchOperator(task_id="load_batch", pipeline=system.settings).execute(run_context(ti=ti))


def test_a_retry_that_succeeds_is_no_failed_run(system: FakeSystem, recorder: Recorder) -> None:
    system.log.append("orders", b"1")
    system.publisher.answer = CommitAnswer.LOST_BEFORE_COMMIT
    with pytest.raises(AirflowException):
        load(system, "run-1", try_number=1)
    load(system, "run-1", try_number=2)
    system.audit("run-1")
    assert recorder.values("step_failures", step="load", fault="CommitDidNotHappen") == [1]
    assert recorder.values("failed_runs_in_a_row") == [0]


def test_failed_runs_add_up_until_one_succeeds(system: FakeSystem, recorder: Recorder) -> None:
    system.log.append("orders", b"1")
    for run_id in ("run-1", "run-2"):
        for try_number in (1, 2):
            system.publisher.answer = CommitAnswer.LOST_BEFORE_COMMIT
            with pytest.raises(AirflowException):
                load(system, run_id, try_number=try_number)
    assert recorder.values("failed_runs_in_a_row") == [1, 2]
    system.run("run-3")
    assert recorder.values("failed_runs_in_a_row") == [1, 2, 0]


def test_a_fault_that_no_retry_mends_fails_its_run_at_the_first_try(system: FakeSystem, recorder: Recorder) -> None:
    system.log.append("orders", b"1")
    system.job_fault = TargetMismatch("the target refused the batch")
    with pytest.raises(AirflowFailException):
        load(system, "run-1", try_number=1, max_tries=3)
    assert recorder.values("failed_runs_in_a_row") == [1]


def test_waiting_for_another_run_is_no_failure(system: FakeSystem, recorder: Recorder) -> None:
    system.log.append("orders", b"1")
    plan = PlanBatchOperator(task_id="plan_batch", pipeline=system.settings)
    plan.execute(run_context(ti=TaskInstance(run_id="run-1")))
    sent = len(recorder.sent)
    with pytest.raises(AirflowRescheduleException):
        plan.execute(run_context(ti=TaskInstance(run_id="run-2")))
    assert recorder.sent[sent:] == []


def test_a_task_that_runs_out_of_time_is_counted(
    system: FakeSystem, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.log.append("orders", b"1")

    def plan_view(*_: Any) -> Any:
        raise AirflowTaskTimeout("execution_timeout")

    monkeypatch.setattr(system.ledger, "plan_view", plan_view)
    with pytest.raises(AirflowTaskTimeout):
        system.run("run-1")
    assert recorder.values("step_failures", step="plan", fault="AirflowTaskTimeout") == [1]
    assert recorder.values("failed_runs_in_a_row") == [1]


def test_the_next_run_is_due_as_the_schedule_says_after_the_plan(system: FakeSystem, recorder: Recorder) -> None:
    hourly = replace(system.settings.schedule, schedule="20 * * * *", timezone="Europe/Berlin")
    system.settings = replace(system.settings, schedule=hourly)
    system.log.append("orders", b"1")
    system.run("run-1")
    [batch] = system.database.batches.values()
    [due] = recorder.values("next_run_due_timestamp_seconds")
    planned = batch.planned_at.timestamp()
    assert recorder.values("planned_timestamp_seconds") == [planned]
    assert (due % 3_600, 0 < due - planned <= 3_600) == (1_200, True)


def test_a_group_in_a_dag_of_somebody_else_has_no_time_of_its_own(system: FakeSystem, recorder: Recorder) -> None:
    hourly = replace(system.settings.schedule, schedule="@hourly")
    system.settings = replace(system.settings, schedule=hourly)
    for task_id, operator in (
        ("load_orders.load_batch", LoadBatchOperator),
        ("load_orders.audit_batch", AuditBatchOperator),
    ):
        context: Any = {**run_context(ti=TaskInstance(task_id)), "outlet_events": OutletEvents()}
        operator(task_id=task_id, pipeline=system.settings).execute(context)
    assert len(recorder.values("last_success_timestamp_seconds")) == 1
    assert recorder.values("next_run_due_timestamp_seconds") == []


class CountingLedger(FakeLedger):
    """Counts how often somebody reads the whole view of a plan; what recording a plan reads again is not meant."""

    views = 0

    def plan_view(self, pipeline: str, request: Request, target: TargetSettings) -> PlanView:
        self.views += 1
        return super().plan_view(pipeline, request, target)

    def record_plan(self, plan: NewPlan, seen: PlanView) -> Batch:
        before, batch = self.views, super().record_plan(plan, seen)
        self.views = before
        return batch


@pytest.mark.parametrize(
    ("has_metrics", "has_mirror", "views"), [(True, True, 4), (True, False, 4), (False, True, 3), (False, False, 2)]
)
def test_a_run_reads_the_whole_view_of_a_plan_for_nobody_who_does_not_want_it(
    monkeypatch: pytest.MonkeyPatch, has_metrics: bool, has_mirror: bool, views: int
) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", str(has_metrics))
    system = FakeSystem()
    ledger = system.ledger = CountingLedger(system.database)
    system.settings = replace(system.settings, watch=replace(system.settings.watch, mirror_group=has_mirror))
    system.install(monkeypatch)
    system.log.append("orders", b"1")
    system.run("run-1")
    context = run_context(ti=TaskInstance("report_left_out", run_id="run-1"))
    ReportLeftOutOperator(task_id="report_left_out", pipeline=system.settings).execute(context)
    with pytest.raises(AirflowSkipException):
        FollowUpOperator(task_id="follow_up", pipeline=system.settings).execute(context)
    # Plan, metrics after it, the plan step of the load, metrics and consumer group after the audit.
    assert ledger.views == views


def test_the_position_is_copied_after_the_announcement(system: FakeSystem, recorder: Recorder) -> None:
    system.log.append("orders", b"1", b"2", partition=1)
    system.run("run-1")
    assert system.groups.groups == {}
    system.settings = replace(system.settings, watch=replace(system.settings.watch, mirror_group=True))
    system.run("run-2")
    assert system.groups.groups == {
        "kafka_ingest.orders": {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 2}
    }
