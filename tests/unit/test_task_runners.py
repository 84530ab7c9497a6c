"""How faults of tasks travel to the driver, and that every task answers once."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext

from kafka_ingest.errors import AccountingMismatch, BrokerUnavailable, Fenced, IngestError, OffsetsExpired, RetryLater
from kafka_ingest.postgres.staging_tables import PostgresStaging
from kafka_ingest.protocol.staging import StageContext, StageFault, StageResult, StageTask, one_result_per_task
from kafka_ingest.protocol.target import TargetShape
from spark_jobs import spark_runner
from spark_jobs.load_job import InProcessRunner
from spark_jobs.spark_runner import SparkTaskRunner, TaskCrashed
from tests.builders import batch_settings, planned_batch

SECRET = "pg-s3cret"
BATCH = planned_batch()
TASKS = [StageTask(0, ()), StageTask(1, ())]
CONTEXT = StageContext(BATCH.batch_id, 1, batch_settings(), TargetShape((), ()), {}, {"password": SECRET})


def result(task_index: int, attempt_id: int = 7) -> StageResult:
    return StageResult(task_index, attempt_id, ())


def staging_fails(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def stage_task(*_: Any) -> StageResult:
        raise error

    monkeypatch.setattr("spark_jobs.stage.stage_task", stage_task)


def test_results_are_given_in_the_order_of_the_tasks() -> None:
    assert one_result_per_task(TASKS, [result(1), result(0)]) == [result(0), result(1)]


@pytest.mark.parametrize("found", [[result(0)], [result(0), result(0)], [result(0), result(1), result(1)], []])
def test_a_missing_or_second_result_publishes_nothing(found: list[StageResult]) -> None:
    with pytest.raises(AccountingMismatch, match="one result each"):
        one_result_per_task(TASKS, found)


def test_the_fault_of_the_first_task_comes_back_in_its_class() -> None:
    faults = [
        StageFault(1, BrokerUnavailable("second").to_record()),
        StageFault(0, OffsetsExpired("first").to_record()),
    ]
    with pytest.raises(OffsetsExpired, match="first"):
        one_result_per_task(TASKS, faults)


@pytest.mark.parametrize("is_last", [False, True])
def test_a_fault_that_needs_a_person_is_a_value_so_that_spark_does_not_retry_it(
    monkeypatch: pytest.MonkeyPatch, is_last: bool
) -> None:
    error = OffsetsExpired("gone")
    staging_fails(monkeypatch, error)
    answer = spark_runner._stage(TASKS[0], CONTEXT, 7, is_last=is_last)
    assert answer == StageFault(0, error.to_record())


def test_a_fault_that_can_pass_is_retried_by_spark_until_its_last_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    error = BrokerUnavailable("away")
    staging_fails(monkeypatch, error)
    with pytest.raises(TaskCrashed, match="away"):
        spark_runner._stage(TASKS[0], CONTEXT, 7, is_last=False)
    assert spark_runner._stage(TASKS[0], CONTEXT, 7, is_last=True) == StageFault(0, error.to_record())


def test_an_unexpected_error_reaches_spark_with_its_trace_and_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    staging_fails(monkeypatch, ValueError(f"connection password={SECRET} refused"))
    with pytest.raises(TaskCrashed) as caught:
        spark_runner._stage(TASKS[0], CONTEXT, 7, is_last=True)
    assert "Traceback" in str(caught.value)
    assert "password=*** refused" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_the_context_hides_its_secrets() -> None:
    assert SECRET not in repr(CONTEXT)


def test_in_process_every_task_is_an_attempt_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    def stage_task(task: StageTask, context: StageContext, attempt_id: int) -> StageResult:
        attempts.append(attempt_id)
        return result(task.task_index, attempt_id)

    monkeypatch.setattr("spark_jobs.stage.stage_task", stage_task)
    results = InProcessRunner(lambda _: CONTEXT, tasks=2).run(BATCH, TASKS)
    assert [r.attempt_id for r in results] == attempts
    assert len(set(attempts)) == 2


@pytest.mark.parametrize("error", [OffsetsExpired("gone"), BrokerUnavailable("away")])
def test_in_process_a_fault_ends_the_load_at_once(monkeypatch: pytest.MonkeyPatch, error: IngestError) -> None:
    staging_fails(monkeypatch, error)
    with pytest.raises(type(error)):
        InProcessRunner(lambda _: CONTEXT).run(BATCH, TASKS)


def test_in_process_a_cancelled_load_begins_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    staging_fails(monkeypatch, AssertionError("a task began"))
    runner = InProcessRunner(lambda _: replace(CONTEXT))
    runner.cancel()
    with pytest.raises(Fenced):
        runner.run(BATCH, TASKS)


class FailingSpark:
    """A SparkContext whose action fails."""

    master = "local[2]"

    def __init__(self, fault: Exception) -> None:
        self._fault = fault

    def setJobGroup(self, *_: Any, **__: Any) -> None:  # noqa: N802 (PySpark's name)
        pass

    def parallelize(self, *_: Any) -> FailingSpark:
        return self

    def mapPartitionsWithIndex(self, _: Any) -> FailingSpark:  # noqa: N802 (PySpark's name)
        return self

    def collect(self) -> NoReturn:
        raise self._fault


def run_on(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresStaging, "places", lambda *_: ["orders[3] offsets [10, 20)"])
    runner = SparkTaskRunner(lambda _: CONTEXT, executor_timeout_seconds=60)
    monkeypatch.setattr(runner, "_spark", FailingSpark(fault))
    runner.run(BATCH, TASKS)


@pytest.mark.parametrize(
    "told", ["Python worker exited unexpectedly (crashed)", "ExecutorLostFailure (executor 1 exited)", "MemoryError"]
)
def test_a_worker_that_dies_is_told_with_its_offsets_and_how_to_pass_them(
    monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    with pytest.raises(RetryLater) as caught:
        run_on(Py4JError(f"Job aborted due to stage failure: {told} ..."), monkeypatch)
    assert "orders[3] offsets [10, 20)" in caught.value.found
    assert "reset --to-offset TOPIC PARTITION OFFSET" in str(caught.value.next_command)


def test_another_fault_of_spark_stays_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Py4JError, match="no such file"):
        run_on(Py4JError("no such file"), monkeypatch)


class DeadJvm:
    """What is left of a SparkContext whose JVM was killed after its start."""

    applicationId, uiWebUrl = "app-1", None  # noqa: N815 (PySpark's names)

    def __init__(self, fault: Exception) -> None:
        self._fault = fault

    def cancelAllJobs(self) -> None:  # noqa: N802 (PySpark's name)
        raise self._fault

    def stop(self) -> None:
        raise self._fault


@pytest.mark.parametrize(
    "fault", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "Connection refused")]
)
def test_a_jvm_that_was_killed_does_not_hide_what_came_of_the_batch(
    fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "getOrCreate", lambda _: DeadJvm(fault))
    runner = SparkTaskRunner(lambda _: CONTEXT, tasks=1, executor_timeout_seconds=60)
    runner.parallelism()
    runner.cancel()
    runner.release()


class IdleCluster:
    """A SparkContext whose jobs wait for executors until they are cancelled.

    Attributes:
        executors: How many it is said to have, at each look; the last one stays.
        cancelled: Whether its job was told to end.
    """

    master = "spark://m:7077"
    applicationId, uiWebUrl = "app-1", None  # noqa: N815 (PySpark's names)

    def __init__(self, *executors: int) -> None:
        self._executors = list(executors)
        self.cancelled = threading.Event()
        self._jsc = self
        self.stopped = False

    def getConf(self) -> dict[str, str]:  # noqa: N802 (PySpark's name)
        return {}

    def setJobGroup(self, *_: str, interruptOnCancel: bool) -> None:  # noqa: N802, N803 (PySpark's names)
        """Nothing to do."""

    def sc(self) -> IdleCluster:
        return self

    def getExecutorMemoryStatus(self) -> IdleCluster:  # noqa: N802 (Spark's name)
        return self

    def size(self) -> int:
        found = self._executors[0]
        if len(self._executors) > 1:
            del self._executors[0]
        return 1 + found  # the driver

    def parallelize(self, *_: object) -> IdleCluster:
        return self

    def mapPartitionsWithIndex(self, _: object) -> IdleCluster:  # noqa: N802 (PySpark's name)
        return self

    def collect(self) -> list[StageResult]:
        assert self.cancelled.wait(30), "nobody cancelled it"
        raise RuntimeError("Job 0 cancelled")

    def cancelAllJobs(self) -> None:  # noqa: N802 (PySpark's name)
        self.cancelled.set()

    def stop(self) -> None:
        self.stopped = True


class BusyCluster(IdleCluster):
    """One whose driver is so slow that its job begins after the first look for executors has cancelled all jobs."""

    def collect(self) -> list[StageResult]:
        assert self.cancelled.wait(30), "nobody looked"
        self.cancelled.clear()
        return super().collect()


def runner_on(cluster: IdleCluster, monkeypatch: pytest.MonkeyPatch, timeout_seconds: float) -> SparkTaskRunner:
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda: None)
    monkeypatch.setattr(SparkContext, "getOrCreate", lambda _: cluster)
    return SparkTaskRunner(lambda _: CONTEXT, tasks=2, executor_timeout_seconds=timeout_seconds)


@pytest.mark.parametrize(
    "cluster",
    [IdleCluster(0), IdleCluster(1, 1, 0), BusyCluster(0)],
    ids=["never one", "one that was lost", "a job that begins late"],
)
def test_a_cluster_that_gives_no_executor_ends_the_load_for_a_retry(
    cluster: IdleCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RetryLater, match="no executor for 0 seconds") as caught:
        runner_on(cluster, monkeypatch, timeout_seconds=0.01).run(BATCH, TASKS)
    assert cluster.cancelled.is_set()
    assert "spark://m:7077" in caught.value.expected


def test_a_job_that_was_cancelled_for_another_reason_is_not_told_as_a_want_of_executors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = IdleCluster(1)
    cluster.cancelAllJobs()
    with pytest.raises(RuntimeError, match="Job 0 cancelled"):
        runner_on(cluster, monkeypatch, timeout_seconds=60).run(BATCH, TASKS)


def test_a_released_runner_has_stopped_spark_and_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = IdleCluster(1)
    runner = runner_on(cluster, monkeypatch, timeout_seconds=60)
    runner.parallelism()
    runner.release()
    assert cluster.stopped
    with pytest.raises(Fenced):
        runner.run(BATCH, TASKS)
    runner.release()
