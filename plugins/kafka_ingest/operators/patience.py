"""How long a task waits for a pipeline that another run holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kafka_ingest.core.errors import Busy, BusyTooLong

if TYPE_CHECKING:
    from airflow.sdk import Context


@contextmanager
def patience(context: Context, timeout_seconds: int) -> Iterator[None]:
    """Lets ``Busy`` pass for so long, counted from the first time that this try was postponed.

    Airflow keeps that time: it does not change while a task is rescheduled again and again, and begins anew with a
    retry or a clear (as for sensors in mode ``reschedule``, ``airflow/sdk/bases/sensor.py``, Airflow 3.3.2).

    Raises:
        Busy: There is time left.
        BusyTooLong: There is none; names the holder.
    """
    try:
        yield
    except Busy as busy:
        waiting_since = context["ti"].get_first_reschedule_date(context)
        if waiting_since is None or datetime.now(UTC) - waiting_since < timedelta(seconds=timeout_seconds):
            raise
        raise BusyTooLong(
            f"another request has held the pipeline for {timeout_seconds} seconds of waiting",
            expected="a free pipeline within airflow.busy_timeout_seconds of the pipeline file",
            found=busy.found,
            next_command="wait for the holder or stop its run, then clear this task; nothing was planned or lost",
            pipeline=busy.pipeline,
            batch_id=busy.batch_id,
        ) from None
