"""How far apart the runs of a schedule are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from kafka_ingest.core.schedule_settings import ScheduleSettings

#: Any moment will do, and the same one always gives the same answer.
_FROM = datetime(2025, 1, 1, tzinfo=UTC)
#: A year and a month hold every weekday, month's end and season; two runs at least, however rare they are.
_UNTIL = _FROM + timedelta(days=396)
#: More than a day of a run every minute, so that a night without runs is seen, in a few tenths of a second.
_MOST_RUNS = 2_000
#: Airflow's own preset, which croniter does not know (airflow/utils/dates.py, 3.3).
_PRESETS = {"@quarterly": "0 0 1 */3 *"}


def longest_interval_seconds(schedule: ScheduleSettings) -> float | None:
    """Gives the longest time between two runs; ``None`` for a pipeline that only runs by hand.

    It is taken from a year's runs, 2,000 at most, in UTC: a change of the clock can add an hour.
    """
    if schedule.schedule is None:
        return None
    moments = _runs(_PRESETS.get(schedule.schedule, schedule.schedule))
    return max((later - earlier).total_seconds() for earlier, later in pairwise(moments))


def _runs(cron: str) -> list[datetime]:
    # Airflow brings croniter; it has no type information.
    from croniter import croniter  # type: ignore[import-untyped]

    runs = croniter(cron, _FROM, ret_type=datetime)
    moments: list[datetime] = [runs.get_next(), runs.get_next()]
    while moments[-1] < _UNTIL and len(moments) < _MOST_RUNS:
        moments.append(runs.get_next())
    return moments
