"""How long a task waits for a held pipeline, and what it says when it gives up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import AirflowFailException

from kafka_ingest.operators.tasks import PlanBatchOperator
from kafka_ingest.protocol.batch import Request
from kafka_ingest.protocol.plan import PlanPorts, plan_batch
from tests.builders import pipeline_settings
from tests.dags.contexts import TaskInstance, run_context
from tests.dags.replaced_world import replace_world
from tests.fakes.ledger import FakeLedger
from tests.fakes.loading import FakeRunStates, FakeTarget
from tests.fakes.log import FakeLog

HOUR = 3_600
HOLDER = Request("orders", "scheduled__2026-01-01T11:00:00+00:00")


@pytest.fixture(autouse=True)
def held_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline that the batch of another run holds."""
    log = FakeLog()
    log.create_topic("orders", partitions=1)
    log.append("orders", b"a")
    ports = PlanPorts(FakeLedger(), log, FakeTarget(), FakeRunStates())
    plan_batch(pipeline_settings(), HOLDER, ports, settings_hash="hash-1")
    replace_world(monkeypatch, plan_ports=lambda: ports)


def plan(*, waited_seconds: int | None) -> None:
    settings = pipeline_settings()
    settings = replace(settings, schedule=replace(settings.schedule, busy_timeout_seconds=HOUR))
    since = None if waited_seconds is None else datetime.now(UTC) - timedelta(seconds=waited_seconds)
    task = PlanBatchOperator(task_id="plan_batch", pipeline=settings)
    task.execute(run_context(ti=TaskInstance(waiting_since=since)))


@pytest.mark.parametrize("waited_seconds", [None, 0, HOUR - 60])
def test_a_held_pipeline_is_waited_for(waited_seconds: int | None) -> None:
    with pytest.raises(AirflowRescheduleException):
        plan(waited_seconds=waited_seconds)


def test_a_pipeline_that_stays_held_fails_the_task_and_names_holder_and_hold() -> None:
    with pytest.raises(AirflowFailException) as caught:
        plan(waited_seconds=HOUR + 1)
    message = str(caught.value)
    assert message.startswith("BusyTooLong: another request has held the pipeline for 3600 seconds of waiting")
    assert "found: DAG orders, run scheduled__2026-01-01T11:00:00+00:00, step " in message
    assert "hold until 2026-01-02T12:30:00+00:00" in message
