"""Data intervals of a pipeline's schedule."""

from __future__ import annotations

from datetime import datetime

import pendulum
from airflow.timetables.interval import CronDataIntervalTimetable

from kafka_ingest.core.schedule_settings import ScheduleSettings


def timetable_of(schedule: ScheduleSettings) -> CronDataIntervalTimetable | None:
    """Gives the timetable of a schedule; ``None`` for a pipeline that runs only when triggered.

    With intervals, because a run for an hour should say which hour, also where what it reads is decided by offsets.
    """
    return CronDataIntervalTimetable(schedule.schedule, timezone=schedule.timezone) if schedule.schedule else None


def last_ended_interval_end(schedule: ScheduleSettings, moment: datetime) -> datetime:
    """Gives the end of the last interval that had ended at a moment; one that ends just then has.

    Args:
        schedule: With a cron expression or preset.
        moment: With a time zone.
    """
    timetable = timetable_of(schedule)
    if timetable is None:
        raise ValueError("a pipeline without a schedule has no intervals")
    return timetable.infer_manual_data_interval(run_after=pendulum.instance(moment)).end
