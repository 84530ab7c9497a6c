"""What became of each try of a step, recorded for people: the protocol neither reads nor needs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from kafka_ingest.errors import Busy, IngestError
from kafka_ingest.protocol.batch import LoadPhases, Request


class Step(StrEnum):
    """The steps that are recorded."""

    PLAN = "plan"
    LOAD = "load"
    AUDIT = "audit"


class AttemptOutcome(StrEnum):
    """How a try ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    WAITING = "waiting"  # another request holds the pipeline; the same try is asked again
    SKIPPED = "skipped"


@dataclass(slots=True)
class Attempt:
    """One try of a step; the step fills in what it learns.

    Attributes:
        pipeline: Name of the pipeline.
        step: The step.
        request: Whose try it is: DAG, run and map index.
        task_id: Id of the task in Airflow; the command's name where there is no Airflow.
        try_number: From 1 on.
        batch_id: The batch, once it is known.
        phases: How long the phases of a load took, in seconds.
        spark_application_id: Spark's name for the job, once it is known.
        spark_ui_url: Where to look at the job; empty where it has no page.
        outcome: How it ended; ``None`` while it runs.
        fault: Class of the error that ended it, or that it waits for.
        message: Its text, which holds no secret.
    """

    pipeline: str
    step: Step
    request: Request
    task_id: str
    try_number: int = 1
    batch_id: str | None = None
    phases: LoadPhases | None = None
    spark_application_id: str | None = None
    spark_ui_url: str | None = None
    outcome: AttemptOutcome | None = None
    fault: str | None = None
    message: str | None = None
    _began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Time since it began."""
        return time.monotonic() - self._began

    def end(self, error: BaseException | None, *, is_skipped: bool = False) -> None:
        """Note how it ended; of an error that is not this package's only the class: its text may hold anything."""
        if error is None or is_skipped:
            self.outcome = AttemptOutcome.SKIPPED if is_skipped else AttemptOutcome.SUCCEEDED
            return
        self.outcome = AttemptOutcome.WAITING if isinstance(error, Busy) else AttemptOutcome.FAILED
        self.fault = type(error).__name__
        self.message = str(error) if isinstance(error, IngestError) else "the task's log has the trace"


class Attempts(Protocol):
    """Where tries are recorded."""

    def record(self, attempt: Attempt) -> None:
        """Record that a try began, what became known of it, or how it ended; a try has one entry."""


@contextmanager
def recorded(
    attempt: Attempt,
    attempts: Callable[[], Attempts],
    warn: Callable[[str], object],
    *,
    skips: type[BaseException] | tuple[()] = (),
) -> Iterator[Attempt]:
    """Record how the block ends; what it raises passes through. That it cannot be recorded is a warning, no fault.

    Args:
        attempt: The try.
        attempts: Opens the record; may raise as the step itself.
        warn: Takes the warning.
        skips: What the block raises when there is nothing to do.
    """
    try:
        yield attempt
    except BaseException as error:
        attempt.end(error, is_skipped=isinstance(error, skips))
        record(attempt, attempts, warn)
        raise
    attempt.end(None)
    record(attempt, attempts, warn)


def record(attempt: Attempt, attempts: Callable[[], Attempts], warn: Callable[[str], object]) -> None:
    """Record a try as it stands now, or warn: whatever a look-up of secrets raises must not hide how the step ended."""
    try:
        attempts().record(attempt)
    except Exception as error:  # noqa: BLE001
        if type(error).__name__ != attempt.fault:  # else the step has just failed of the same, and says so
            warn(f"what became of this try is not in the ledger, which nothing depends on: {_told(error)}")


def _told(error: Exception) -> str:
    """Return an error's text, where it is known to hold no secret, else its class."""
    return str(error) if isinstance(error, IngestError) else type(error).__name__
