"""Staging tasks on Spark: one partition a task, one result a partition."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext, TaskContext

from kafka_ingest.errors import ConfigError, Fenced, IngestError, RetryLater
from kafka_ingest.postgres.faults import trace_without_payload
from kafka_ingest.postgres.staging_tables import PostgresStaging
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.staging import StageContext, StageFault, StageResult, StageTask, one_result_per_task
from kafka_ingest.secrets import scrubbed, secret_values
from spark_jobs.process import leave_no_core_file, start_arrow_without_pandas
from spark_jobs.spark_start import SparkStart, most_tasks, where_to_look

_log = logging.getLogger(__name__)

#: How often to look for executors: often enough beside a wait of minutes, and one small question to the JVM.
_LOOK_SECONDS = 5.0


#: Spark 4.2's words for a process that ended without an error of its own (137: killed, mostly for its memory).
_SIGNS_OF_DEATH = (
    "Python worker exited unexpectedly (crashed)",
    "ExecutorLostFailure",
    "exit code 137",
    "MemoryError",
)


#: Python's and Spark's words for executors on which no task can run (Spark 4.2).
_UNFIT = re.compile(r"No module named '[\w.]+'|\[PYTHON_VERSION_MISMATCH\].*|Cannot run program \".*")
#: Spark's words where somebody else ended the application: an administrator, the master, YARN (``DAGScheduler``, 4.2).
_APPLICATION_ENDED = "SparkContext was shut down"


class TaskCrashed(Exception):
    """An unexpected error in a task; its text is the task's trace without secrets."""


class SparkTaskRunner:
    """The port ``TaskRunner`` over an RDD of tasks.

    It does not stop Spark at the end of a load: the JVM stops when this process has ended (the shutdown hook of
    ``SparkContext``, Spark 4.2). PySpark's ``stop()`` would wait up to a second longer, for its thread for
    accumulators. A fenced attempt lives on, so it stops Spark.

    Spark retries a task that loses its executor or meets a passing fault, and may run copies of a slow one. The action
    gives exactly one result a partition, that of the winning attempt; only its rows are published.

    Args:
        context_of: Returns the context of an attempt.
        tasks: How many tasks to cut a batch into; ``None`` takes Spark's default parallelism.
        executor_timeout_seconds: How long a cluster may leave the application without any executor.
    """

    def __init__(
        self,
        context_of: Callable[[Batch], StageContext],
        *,
        tasks: int | None = None,
        executor_timeout_seconds: float,
    ) -> None:
        self._context_of = context_of
        self._tasks = tasks
        self._executor_timeout_seconds = executor_timeout_seconds
        self._spark: SparkContext | None = None
        self._start = SparkStart(executor_timeout_seconds)
        self._cancelled = threading.Event()

    def parallelism(self) -> int:
        """Return how many tasks can run at once; starts Spark."""
        spark = self._started()
        return self._tasks or most_tasks(spark)

    def run(self, batch: Batch, tasks: Sequence[StageTask]) -> Sequence[StageResult]:
        """Stage all tasks, each in a Spark partition of its own."""
        spark = self._started()
        # A passing fault that comes again is returned as a value in the last attempt that Spark allows.
        last_attempt = 0 if str(spark.master).startswith("local") else _max_failures(spark) - 1
        context = self._context_of(batch)
        stage = partial(_stage_partition, context, last_attempt)
        spark.setJobGroup(batch.batch_id, f"stage batch {batch.batch_id}", interruptOnCancel=True)
        if self._cancelled.is_set():
            raise Fenced("staging was cancelled", pipeline=batch.pipeline, batch_id=batch.batch_id)
        try:
            with _ExecutorWatch(spark, batch, self._executor_timeout_seconds):
                answers = spark.parallelize(tasks, len(tasks)).mapPartitionsWithIndex(stage).collect()
        except Py4JError as error:
            if self._cancelled.is_set():
                raise
            if (sign := _sign_of_death(error)) is not None:
                raise _tasks_died(batch, sign, _places(batch, context)) from error
            if (unfit := _UNFIT.search(str(error))) is not None:
                raise _unfit_executors(batch, unfit[0]) from error
            if _APPLICATION_ENDED in str(error):
                raise _application_ended(spark) from error
            raise
        return one_result_per_task(tasks, answers)

    def cancel(self) -> None:
        """Cancel running tasks; safe from any thread, and before they have begun."""
        self._cancelled.set()
        if self._spark is None:
            self._start.end()
            return
        try:
            self._spark.cancelAllJobs()
        except (Py4JError, OSError) as error:  # OSError: nothing listens on its port
            # A killed JVM runs no tasks any more. This error must not hide what came of the batch.
            _log.warning("could not cancel the tasks, Spark's JVM is gone: %s", error)

    def release(self) -> None:
        """Stop Spark, so that the cluster gives its cores to others."""
        self._cancelled.set()
        spark, self._spark = self._spark, None
        if spark is None:
            return
        try:
            spark.stop()
        except (Py4JError, OSError) as error:
            _log.warning("could not stop Spark, its JVM is gone: %s", error)

    def _started(self) -> SparkContext:
        if self._spark is None:
            self._spark = self._start.run()
            # Read by ``SparkSubmitLog`` of the task (``operators/tasks.py``).
            page = f", its page: {url}" if (url := self._spark.uiWebUrl) else ""
            _log.info("Spark application %s has started%s", self._spark.applicationId, page)
        return self._spark


class _ExecutorWatch:
    """A context manager around a job; ends the job when it gets no executor from the cluster.

    Spark itself waits for ever: "Initial job has not accepted any resources" (``TaskSchedulerImpl``, 4.2).

    Raises:
        RetryLater: The job was ended, because it had no executor.
    """

    def __init__(self, spark: SparkContext, batch: Batch, timeout_seconds: float) -> None:
        self._spark = spark
        self._batch = batch
        self._timeout_seconds = timeout_seconds
        self._ended = threading.Event()
        self._gave_up = threading.Event()

    def __enter__(self) -> None:
        # A local master runs tasks in the driver.
        if not str(self._spark.master).startswith("local"):
            threading.Thread(target=self._watch, name="executor watch", daemon=True).start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._ended.set()
        if error is not None and self._gave_up.is_set():
            raise self._fault() from error

    def _watch(self) -> None:
        seen_at = time.monotonic()
        try:
            while not self._ended.wait(min(_LOOK_SECONDS, self._timeout_seconds)):
                if self._has_executor():
                    seen_at = time.monotonic()
                elif time.monotonic() - seen_at >= self._timeout_seconds:
                    self._gave_up.set()
                    # At each look: on a busy machine the first one may come before the job itself.
                    self._spark.cancelAllJobs()
        except (Py4JError, OSError) as error:
            # Without a JVM there is no job to wait for.
            _log.warning("could not ask Spark for its executors, its JVM is gone: %s", error)

    def _has_executor(self) -> bool:
        jvm: Any = self._spark._jsc  # PySpark has no call for it
        # The driver is in the list, too.
        return int(jvm.sc().getExecutorMemoryStatus().size()) > 1

    def _fault(self) -> RetryLater:
        return RetryLater(
            f"Spark gave the application no executor for {self._timeout_seconds:.0f} seconds",
            expected=f"cores and memory on {self._spark.master} within hold.start_timeout_seconds",
            found="none: others hold them, no worker has as much as one executor asks for, or executors cannot start",
            next_command=f"{where_to_look(self._spark.getConf())} says who holds the cores, or why none starts; then "
            "run it again",
        )


def _sign_of_death(error: Py4JError) -> str | None:
    text = str(error)
    return next((sign for sign in _SIGNS_OF_DEATH if sign in text), None)


def _places(batch: Batch, context: StageContext) -> str:
    try:
        return ", ".join(PostgresStaging(context.postgres).places(batch)) or "no place was told"
    except IngestError as error:
        return f"where they were cannot be read ({error.found})"


def _tasks_died(batch: Batch, sign: str, places: str) -> RetryLater:
    return RetryLater(
        "processes of staging tasks died, in all attempts that Spark allows",
        expected="memory for ten times the largest record, in each task that runs at once",
        found=f"{sign}; at work: {places}, or shortly behind",
        next_command=(
            "give tasks more memory, or run fewer at once (spark.tasks); or pass the record as docs/runbook.md,"
            f" section RetryLater, says: python -m kafka_ingest change {batch.pipeline} reset"
            ' --to-offset TOPIC PARTITION OFFSET --supersede --reason "..."'
        ),
    )


def _unfit_executors(batch: Batch, found: str) -> ConfigError:
    return ConfigError(
        "Spark's executors cannot run the tasks of a load",
        expected="the packages of docs/deploying.md (Which packages), in a Python of the driver's minor version",
        found=found,
        next_command="install them where tasks run, or name another Python in spark.pyspark.python (spark.conf); then: "
        f"python -m kafka_ingest preflight {batch.pipeline} --spark",
    )


def _application_ended(spark: SparkContext) -> RetryLater:
    return RetryLater(
        "the cluster ended the application while its tasks ran",
        expected=f"the application alive on {spark.master} until its tasks have ended",
        found="it was ended: by an administrator, by the cluster's manager, with the node of its master, or by Spark "
        "itself, after too many executors had failed",
        next_command=f"see ERROR in the log above; {where_to_look(spark.getConf())} says why; then run it again",
    )


def _max_failures(spark: SparkContext) -> int:
    return int(spark.getConf().get("spark.task.maxFailures", "4") or 4)


def _stage_partition(
    context: StageContext, last_attempt: int, _index: int, tasks: Iterable[StageTask]
) -> Iterator[StageResult | StageFault]:
    """Run on an executor: everything it needs travels in its arguments, nothing comes from its environment."""
    spark_task = TaskContext.get()
    if spark_task is None:
        raise RuntimeError("a staging task runs inside a Spark task only")
    for task in tasks:
        yield _stage(task, context, spark_task.taskAttemptId(), is_last=spark_task.attemptNumber() >= last_attempt)


def _stage(task: StageTask, context: StageContext, attempt_id: int, *, is_last: bool) -> StageResult | StageFault:
    leave_no_core_file()
    # Only here: the driver does not use Arrow, and loading it takes a second.
    start_arrow_without_pandas()
    from spark_jobs.stage import stage_task

    try:
        return stage_task(task, context, attempt_id)
    except IngestError as error:
        if isinstance(error, RetryLater) and not is_last:
            raise TaskCrashed(str(error)) from None
        return StageFault(task.task_index, error.to_record())
    except Exception as error:  # noqa: BLE001 (it is raised again, as text)
        # Spark prints the exception with its trace in the logs of driver and executor: secrets are removed first.
        secrets = secret_values(context.kafka, context.postgres, context.registry)
        raise TaskCrashed(scrubbed(trace_without_payload(error), secrets)) from None
