"""Runs staging tasks one after another in the driver's own process: for tiny loads in CI, and for tests."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Sequence

from kafka_ingest.errors import Fenced
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.staging import StageContext, StageResult, StageTask, one_result_per_task
from spark_jobs.stage import stage_task


class InProcessRunner:
    """Port ``TaskRunner`` without Spark: the same tasks, the same staging, one at a time.

    Args:
        context_of: Gives the context of an attempt.
        tasks: How many tasks to cut a batch into.
    """

    def __init__(self, context_of: Callable[[Batch], StageContext], *, tasks: int = 1) -> None:
        self._context_of = context_of
        self._tasks = tasks
        # Attempt ids need only differ within an attempt's staging tables; a random start makes mixing them up visible.
        self._attempts = itertools.count(secrets.randbelow(2**62))
        self._cancelled = threading.Event()

    def parallelism(self) -> int:
        """Into how many tasks a batch is cut; they run one after another."""
        return self._tasks

    def run(self, batch: Batch, tasks: Sequence[StageTask]) -> Sequence[StageResult]:
        """Stages all tasks in their order; a fault ends it at once."""
        context = self._context_of(batch)
        return one_result_per_task(batch, tasks, [self._run(task, context, batch) for task in tasks])

    def cancel(self) -> None:
        """Stop before the next task begins."""
        self._cancelled.set()

    def release(self) -> None:
        """Do nothing: there is nothing to close."""

    def _run(self, task: StageTask, context: StageContext, batch: Batch) -> StageResult:
        if self._cancelled.is_set():
            raise Fenced("staging was cancelled", pipeline=batch.pipeline, batch_id=batch.batch_id)
        return stage_task(task, context, next(self._attempts))
