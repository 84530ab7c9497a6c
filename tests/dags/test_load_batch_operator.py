"""How load_batch decides: by the ledger, never by spark-submit's exit code. Spark itself is left out here."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import create_autospec

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from kafka_ingest.adapters.job_environment import JOB_VARIABLE, OUTCOME_VARIABLE
from kafka_ingest.adapters.job_outcome import write_batch, write_error
from kafka_ingest.adapters.job_submission import JobSubmission
from kafka_ingest.core.batch import Batch, BatchState, RecordCounts
from kafka_ingest.core.errors import BrokerUnavailable, Busy, Fenced, IngestError, TooManyDeadLetters
from kafka_ingest.core.load_phases import LoadPhases, TaskSeconds
from kafka_ingest.core.ports import BatchStanding, Ledger
from kafka_ingest.operators import load_batch, wiring
from kafka_ingest.operators.load_batch import LoadBatchOperator
from kafka_ingest.operators.plan_step import run_plan_step
from tests.builders import offset_range, pipeline_settings, planned_batch

PLANNED = planned_batch(offset_range(0, 0, 10))
COMMITTED = replace(PLANNED, state=BatchState.COMMITTED, counts=RecordCounts(rows=10))
SECRET = "s3cret-of-the-job"

Spark = Callable[[LoadBatchOperator], None]


@dataclass
class World:
    """What the operator meets: the planned batch, the ledger after the job, and what the job does."""

    planned: Batch | IngestError = PLANNED
    after: Batch = PLANNED
    job: Spark = lambda _: None
    spark_runs: int = 0
    given_back: list[int] = field(default_factory=list)

    def plan_step(self, *_: object, has_form: bool) -> Batch:
        if isinstance(self.planned, IngestError):
            raise self.planned
        return self.planned

    def ledger(self, _: object) -> Ledger:
        ledger = create_autospec(Ledger, instance=True)
        ledger.settle.return_value = BatchStanding(self.after.state, self.after.claim)
        ledger.batch.return_value = self.after
        ledger.release_hold.side_effect = lambda _, claim: self.given_back.append(claim)
        return cast("Ledger", ledger)

    def execute(self, operator: LoadBatchOperator, _: object) -> None:
        self.spark_runs += 1
        self.job(operator)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(load_batch, "run_plan_step", create_autospec(run_plan_step, side_effect=found.plan_step))
    monkeypatch.setattr(wiring, "ledger", found.ledger)
    monkeypatch.setattr(wiring, "submission", submission)
    monkeypatch.setattr(
        SparkSubmitOperator, "execute", create_autospec(SparkSubmitOperator.execute, side_effect=found.execute)
    )
    return found


def submission(_: object, batch: Batch, outcome_file: Path) -> JobSubmission:
    return JobSubmission(
        master="local[2]",
        application="/jobs/load_batch.py",
        py_files="/jobs/code.zip",
        application_args=("--pipeline", "orders", "--batch-id", batch.batch_id),
        conf={"spark.ui.enabled": "false"},
        env_vars={JOB_VARIABLE: SECRET, OUTCOME_VARIABLE: str(outcome_file)},
        name="kafka_ingest.orders",
        driver_memory="1g",
        executor_memory="1g",
        executor_cores=None,
    )


def run(operator: LoadBatchOperator | None = None) -> dict[str, Any]:
    return (operator or LoadBatchOperator(task_id="load_batch", pipeline=pipeline_settings())).execute(cast("Any", {}))


def killed(_: LoadBatchOperator) -> None:
    raise AirflowException(
        "Cannot execute: spark-submit. Error code is: 137.\nLast spark-submit output:\nstaged 7 of 10"
    )


def reports(error: IngestError) -> Spark:
    def job(operator: LoadBatchOperator) -> None:
        assert operator.env_vars is not None
        write_error(Path(operator.env_vars[OUTCOME_VARIABLE]), error)
        raise AirflowException("Cannot execute: spark-submit. Error code is: 78.")

    return job


def test_a_committed_batch_starts_no_spark(world: World) -> None:
    world.planned = COMMITTED
    assert run()["state"] == "committed"
    assert world.spark_runs == 0


def test_an_empty_plan_is_green_and_starts_no_spark(world: World) -> None:
    world.planned = replace(COMMITTED, ranges=(), counts=RecordCounts())
    assert run()["ranges"] == {}
    assert world.spark_runs == 0


def test_a_held_pipeline_is_asked_again_and_starts_no_spark(world: World) -> None:
    world.planned = Busy("another request holds the pipeline")
    with pytest.raises(AirflowRescheduleException):
        run()
    assert world.spark_runs == 0


def test_a_job_that_committed_is_green(world: World) -> None:
    world.after = COMMITTED
    assert run()["counts"]["rows"] == 10
    assert (world.spark_runs, world.given_back) == (1, [])


@pytest.mark.parametrize("error", [TooManyDeadLetters("too many"), BrokerUnavailable("the broker is away")])
def test_a_load_that_fails_gives_back_the_hold_of_its_plan_and_of_its_job(world: World, error: IngestError) -> None:
    world.job = reports(error)
    with pytest.raises(AirflowException):
        run()
    assert world.given_back == [PLANNED.claim, PLANNED.claim + 1]


def test_a_job_that_committed_says_where_its_time_went(world: World) -> None:
    phases = LoadPhases(session=3.0, stage=12.0, publish=2.0, tasks=TaskSeconds(read=5.5, decode=8.0, copy=9.0))

    def job(operator: LoadBatchOperator) -> None:
        assert operator.env_vars is not None
        write_batch(Path(operator.env_vars[OUTCOME_VARIABLE]), {}, phases)

    world.job, world.after = job, COMMITTED
    assert run()["phases"] == {
        "session": 3.0,
        "stage": 12.0,
        "publish": 2.0,
        "tasks": {"read": 5.5, "decode": 8.0, "copy": 9.0},
    }
    world.job = killed
    assert run()["phases"] is None


def test_a_job_that_committed_and_then_failed_is_green(world: World) -> None:
    world.job, world.after = killed, COMMITTED
    assert run()["state"] == "committed"


def test_exit_code_0_without_a_committed_batch_is_a_failure(world: World) -> None:
    with pytest.raises(AirflowException, match="exit code 0") as caught:
        run()
    assert not isinstance(caught.value, AirflowFailException)


def test_a_killed_job_is_retried_and_its_last_lines_are_told(world: World) -> None:
    world.job = killed
    with pytest.raises(AirflowException, match="staged 7 of 10") as caught:
        run()
    assert not isinstance(caught.value, AirflowFailException)


def test_what_the_job_reported_decides_about_the_retry(world: World) -> None:
    world.job = reports(TooManyDeadLetters("11000 records would become dead letters"))
    with pytest.raises(AirflowFailException, match="11000 records"):
        run()
    world.job = reports(Fenced("a newer claim owns the batch"))
    with pytest.raises(AirflowException, match="newer claim") as caught:
        run()
    assert not isinstance(caught.value, AirflowFailException)


def test_a_missing_spark_submit_is_told_as_such(world: World) -> None:
    def job(_: LoadBatchOperator) -> None:
        raise FileNotFoundError(2, "No such file or directory", "spark-submit")

    world.job = job
    with pytest.raises(AirflowFailException, match="spark-submit cannot be started"):
        run()


def test_secrets_reach_the_job_by_its_environment_alone_and_do_not_stay(world: World) -> None:
    seen: dict[str, object] = {}

    def job(operator: LoadBatchOperator) -> None:
        assert operator.env_vars is not None
        seen["secret"] = operator.env_vars[JOB_VARIABLE]
        seen["line"] = [
            operator.application,
            operator.py_files,
            operator.application_args,
            operator.conf,
            operator.name,
        ]

    world.job, world.after = job, COMMITTED
    operator = LoadBatchOperator(task_id="load_batch", pipeline=pipeline_settings())
    run(operator)
    assert seen["secret"] == SECRET
    assert SECRET not in repr(seen["line"])
    assert operator.env_vars is None
    assert JOB_VARIABLE not in os.environ


def test_nothing_of_the_submission_can_be_rendered() -> None:
    assert tuple(LoadBatchOperator.template_fields) == ()
