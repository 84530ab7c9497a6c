"""What the tasks leave in the ledger of their tries."""

from __future__ import annotations

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from kafka_ingest.errors import DatabaseUnavailable, TargetMismatch
from kafka_ingest.protocol.attempts import AttemptOutcome
from tests.dags.all_fakes import FakeSystem


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> FakeSystem:
    system = FakeSystem()
    system.log.append("orders", b"1", b"2", b"3")
    system.install(monkeypatch)
    return system


def test_every_task_of_a_run_leaves_how_it_ended_and_its_batch(system: FakeSystem) -> None:
    system.run("manual__1")
    succeeded = AttemptOutcome.SUCCEEDED
    assert system.attempts.outcomes() == {"plan_batch": succeeded, "load_batch": succeeded, "audit_batch": succeeded}
    [batch_id] = system.database.batches
    assert {attempt.batch_id for attempt in system.attempts.recorded.values()} == {batch_id}
    [load] = [a for a in system.attempts.recorded.values() if a.task_id == "load_batch"]
    assert load.phases is not None


def test_a_load_that_fails_leaves_the_fault_of_its_job(system: FakeSystem) -> None:
    system.job_fault = TargetMismatch("a column is gone", found="no column amount")
    with pytest.raises(AirflowFailException):
        system.plan_and_load("manual__1")
    *_, load = system.attempts.recorded.values()
    assert (load.task_id, load.outcome, load.fault) == ("load_batch", AttemptOutcome.FAILED, "TargetMismatch")
    assert "no column amount" in str(load.message)


def test_a_load_says_that_it_runs_before_its_job_is_submitted(
    system: FakeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[AttemptOutcome | None] = []
    submission = system._submission
    monkeypatch.setattr(
        "kafka_ingest.world.World.submission",
        lambda _, *given: seen.append(system.attempts.outcomes()["load_batch"]) or submission(*given),  # type: ignore[func-returns-value]
    )
    system.plan_and_load("manual__1")
    assert seen == [None]


def test_a_run_loads_though_nobody_can_record_its_tries(system: FakeSystem) -> None:
    system.attempts.fault = DatabaseUnavailable("nobody answers")
    assert system.run("manual__1")["rows"] == 3


def test_an_error_of_the_record_does_not_hide_that_of_the_task(system: FakeSystem) -> None:
    system.attempts.fault = DatabaseUnavailable("nobody answers")
    system.job_fault = TargetMismatch("a column is gone", found="no column amount")
    with pytest.raises(AirflowException, match="no column amount"):
        system.plan_and_load("manual__1")
