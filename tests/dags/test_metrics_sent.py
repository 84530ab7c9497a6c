"""What the operators send through Airflow's stats, at the backend where StatsD, Datadog or OpenTelemetry would be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException, Stats

from kafka_ingest.errors import DatabaseUnavailable
from kafka_ingest.metrics import METRICS, MetricKind
from kafka_ingest.operators.tasks import FollowUpOperator, ReportLeftOutOperator
from kafka_ingest.protocol.batch import Batch, Request
from kafka_ingest.protocol.decisions import NewPlan
from kafka_ingest.protocol.ledger_view import PlanView
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import TargetSettings
from tests.dags.all_fakes import FakeSystem
from tests.dags.contexts import TaskInstance, run_context
from tests.fakes.ledger import FakeLedger

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
        self.sent.append((MetricKind.GAUGE, stat, value, tags))

    def timing(self, stat: str, dt: float, *, tags: dict[str, str]) -> None:
        self.sent.append((MetricKind.TIMER, stat, dt, tags))

    def values(self, name: str, **tags: str) -> list[float]:
        wanted = {"pipeline": "orders", **tags}
        return [value for _, stat, value, found in self.sent if stat == f"kafka_ingest.{name}" and found == wanted]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    found: Any = Recorder()
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
    defined = {(m.kind, m.name, ("pipeline", *m.tags)) for m in METRICS}
    assert {(kind, name, tuple(tags)) for kind, name, _, tags in recorder.sent} == defined


def test_a_ledger_that_cannot_be_read_for_metrics_fails_no_task(
    system: FakeSystem, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    system.log.append("orders", b"1")
    system.run("run-1")
    sent = len(recorder.sent)

    def plan_view(*_: Any) -> Any:
        raise DatabaseUnavailable("PostgreSQL cannot be reached")

    monkeypatch.setattr(system.ledger, "plan_view", plan_view)
    system.audit("run-1")
    assert "Lag and headroom are not sent" in caplog.text
    assert {name for _, name, _, _ in recorder.sent[sent:]} == {
        "kafka_ingest.valid_through_age_seconds",
        "kafka_ingest.step_duration",
    }


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


def test_a_run_reads_the_whole_view_of_a_plan_four_times(monkeypatch: pytest.MonkeyPatch) -> None:
    system = FakeSystem()
    ledger = system.ledger = CountingLedger(system.database)
    system.settings = replace(system.settings, watch=replace(system.settings.watch, mirror_group=True))
    system.install(monkeypatch)
    system.log.append("orders", b"1")
    system.run("run-1")
    context = run_context(ti=TaskInstance("report_left_out", run_id="run-1"))
    ReportLeftOutOperator(task_id="report_left_out", pipeline=system.settings).execute(context)
    with pytest.raises(AirflowSkipException):
        FollowUpOperator(task_id="follow_up", pipeline=system.settings).execute(context)
    # Plan, metrics after it, the plan step of the load, metrics and consumer group after the audit.
    assert ledger.views == 4


def test_the_position_is_copied_after_the_announcement(system: FakeSystem, recorder: Recorder) -> None:
    system.log.append("orders", b"1", b"2", partition=1)
    system.run("run-1")
    assert system.groups.groups == {}
    system.settings = replace(system.settings, watch=replace(system.settings.watch, mirror_group=True))
    system.run("run-2")
    assert system.groups.groups == {
        "kafka_ingest.orders": {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 2}
    }
