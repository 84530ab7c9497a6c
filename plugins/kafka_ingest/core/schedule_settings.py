"""When Airflow runs a pipeline, up to where a run reads, and what its DAG shows. Not part of the settings hash."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RunEnd(StrEnum):
    """Up to where a live run reads: the end of the log, or the end of the run's data interval."""

    HEAD = "head"
    INTERVAL = "interval"


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """When Airflow runs the pipeline and what its DAG shows.

    ``busy_timeout_seconds`` is by default what one task may take: whoever holds the pipeline longer does not end alone.
    """

    schedule: str | None
    timezone: str = "UTC"
    start_date: str = "2025-01-01"
    end: RunEnd = RunEnd.HEAD
    catchup: bool = False
    follow_up: bool = True
    owner: str = "data-platform"
    tags: tuple[str, ...] = ()
    description: str = ""
    retries: int = 3
    retry_delay_seconds: int = 60
    execution_timeout_seconds: int = 6 * 3600
    busy_timeout_seconds: int = 6 * 3600
