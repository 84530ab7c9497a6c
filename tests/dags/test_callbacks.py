"""What callbacks and notifiers of users are told: our message and the next command, not a stack trace of Spark."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import TaskInstanceState
from airflow.sdk.execution_time.task_runner import finalize

from kafka_ingest.errors import TargetMismatch
from kafka_ingest.operators.tasks import LoadBatchOperator, PlanBatchOperator
from kafka_ingest.protocol.batch import BatchState
from tests.dags.all_fakes import FakeSystem
from tests.dags.contexts import run_context
from tests.fakes.publisher import CommitAnswer


@dataclass
class UserCallback:
    """As in ``default_args``: keeps the exception that Airflow hands over in the context."""

    exceptions: list[BaseException] = field(default_factory=list)

    def __call__(self, context: Any) -> None:
        self.exceptions.append(context["exception"])

    @property
    def told(self) -> str:
        """All that can be made of it, the traceback included."""
        [exception] = self.exceptions
        return "".join(traceback.format_exception(exception))


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> FakeSystem:
    system = FakeSystem()
    system.install(monkeypatch)
    system.log.append("orders", b"1", b"2")
    return system


def run_to_failure(task: PlanBatchOperator | LoadBatchOperator) -> TaskInstanceState:
    """Executes a task that fails, and lets Airflow call what the task has for that."""
    context = run_context()
    with pytest.raises(AirflowException) as caught:
        task.execute(context)
    stops = isinstance(caught.value, AirflowFailException)
    state = TaskInstanceState.FAILED if stops else TaskInstanceState.UP_FOR_RETRY
    context["exception"] = caught.value
    instance = cast("Any", SimpleNamespace(task=task, start_date=None, end_date=None))
    finalize(instance, state, context, structlog.get_logger(), caught.value)
    return state


def test_a_failed_job_tells_the_callback_its_cause_and_the_next_command(system: FakeSystem) -> None:
    system.job_fault = TargetMismatch(
        "the target refused the batch",
        expected="rows that keep the constraint orders_customer_fkey",
        found="customer 7 is not in shop.customers",
        next_command="change the constraint or the data, then clear load_batch",
        pipeline="orders",
        batch_id="b1",
    )
    callback = UserCallback()
    task = LoadBatchOperator(task_id="load_batch", pipeline=system.settings, on_failure_callback=callback)
    assert run_to_failure(task) is TaskInstanceState.FAILED
    [exception] = callback.exceptions
    assert str(exception) == (
        "TargetMismatch: the target refused the batch (pipeline orders, batch b1)\n"
        "  expected: rows that keep the constraint orders_customer_fkey\n"
        "  found: customer 7 is not in shop.customers\n"
        "  next: change the constraint or the data, then clear load_batch"
    )
    assert "SparkException" not in callback.told
    assert "spark-submit" not in callback.told


def test_a_fault_of_the_plan_tells_the_callback_what_was_expected_found_and_what_to_do(system: FakeSystem) -> None:
    system.run("run-1")
    system.log.append("orders", b"3", b"4", b"5")
    system.log.delete_records("orders", 0, before=4)
    callback = UserCallback()
    task = PlanBatchOperator(task_id="plan_batch", pipeline=system.settings, on_failure_callback=callback)
    assert run_to_failure(task) is TaskInstanceState.FAILED
    [exception] = callback.exceptions
    assert [line.partition(":")[0].strip() for line in str(exception).splitlines()] == [
        "OffsetsExpired",
        "expected",
        "found",
        "next",
    ]


def test_a_fault_that_may_pass_is_told_to_the_retry_callback(system: FakeSystem) -> None:
    system.publisher.answer = CommitAnswer.LOST_BEFORE_COMMIT
    callback = UserCallback()
    task = LoadBatchOperator(task_id="load_batch", pipeline=system.settings, on_retry_callback=callback)
    assert run_to_failure(task) is TaskInstanceState.UP_FOR_RETRY
    assert "CommitDidNotHappen" in callback.told
    assert "SparkException" not in callback.told
    assert [batch.state for batch in system.database.batches.values()] == [BatchState.PLANNED]
