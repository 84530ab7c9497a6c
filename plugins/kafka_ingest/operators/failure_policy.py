"""The one place that says what an error means to Airflow.

| family        | Airflow                                                  |
|---------------|----------------------------------------------------------|
| `RetryLater`  | the task fails and is retried                            |
| `Fenced`      | the same: the retry finds the batch as the newer claim left it |
| `Busy`        | the task is asked again later and uses up no retry       |
| `StopAndCall` | the task fails at once, without retries                  |

Anything else is a fault of this package or of its environment: it keeps its stack trace, and Airflow retries.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

# Airflow 3.1 has it only here; the others moved to the SDK and are deprecated here since 3.2.
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from kafka_ingest.core.errors import Busy, IngestError, StopAndCall

#: A held pipeline is asked again after this long: half of the time after which a silent holder loses its hold.
BUSY_DELAY = timedelta(seconds=30)
_ASKED_AGAIN = f"\n  This task asks again by itself, every {BUSY_DELAY.seconds} seconds, without using up a retry."


class TaskLog(Protocol):
    """What the operators need of a task's logger."""

    def info(self, event: Any, /, *args: Any) -> Any:
        """Logs for information."""

    def warning(self, event: Any, /, *args: Any) -> Any:
        """Logs what somebody should look at."""


def airflow_exception(error: IngestError, now: datetime) -> Exception:
    """Gives the exception that makes Airflow do what the error's family says; its text is the error's message."""
    if isinstance(error, Busy):
        return AirflowRescheduleException(now + BUSY_DELAY)  # type: ignore[no-untyped-call]
    if isinstance(error, StopAndCall):
        return AirflowFailException(str(error))
    return AirflowException(str(error))


@contextmanager
def airflow_outcome(log: TaskLog) -> Iterator[None]:
    """Turn the package's errors into Airflow's outcomes.

    The cause is left out of what is raised: an expected fault tells what to do, not where in the code it was noticed.
    Airflow logs the message of what is raised (``_run_task_and_map_outcome`` in
    ``airflow/sdk/execution_time/task_runner.py``, 3.3.2), so it is logged here only where Airflow does not: ``Busy``.
    """
    try:
        yield
    except IngestError as error:
        if isinstance(error, Busy):
            log.info("%s%s", error, _ASKED_AGAIN)
        raise airflow_exception(error, datetime.now(UTC)) from None
