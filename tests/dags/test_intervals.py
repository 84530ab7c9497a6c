"""The last interval that had ended: for runs without a data interval. Days on which the clocks change included.

Berlin: 2026-03-29 01:00 UTC, 02:00 becomes 03:00; 2026-10-25 01:00 UTC, 03:00 becomes 02:00.
New York: 2026-03-08 07:00 UTC, 02:00 becomes 03:00; 2026-11-01 06:00 UTC, 02:00 becomes 01:00.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pendulum
import pytest
from airflow.timetables.base import DataInterval, TimeRestriction

from kafka_ingest.operators.context import last_ended_interval_end, next_run_due, timetable_of
from kafka_ingest.settings import ScheduleSettings


@pytest.mark.parametrize(
    ("cron", "zone", "moment", "end"),
    [
        # An interval that ends at this moment has ended; a millisecond before it had not.
        ("@hourly", "UTC", "2026-01-02T12:00:00", "2026-01-02T12:00:00"),
        ("@hourly", "UTC", "2026-01-02T11:59:59.999", "2026-01-02T11:00:00"),
        ("*/15 * * * *", "UTC", "2026-01-02T12:14:59", "2026-01-02T12:00:00"),
        # Hours in Berlin's spring: 00:00 UTC is 01:00, 01:00 UTC is 03:00.
        ("@hourly", "Europe/Berlin", "2026-03-29T00:59:00", "2026-03-29T00:00:00"),
        ("@hourly", "Europe/Berlin", "2026-03-29T01:00:00", "2026-03-29T01:00:00"),
        ("@hourly", "Europe/Berlin", "2026-03-29T01:30:00", "2026-03-29T01:00:00"),
        # Hours in Berlin's autumn: 00:00 UTC is 02:00 for the first time, 01:00 UTC for the second.
        ("@hourly", "Europe/Berlin", "2026-10-25T00:30:00", "2026-10-25T00:00:00"),
        ("@hourly", "Europe/Berlin", "2026-10-25T01:30:00", "2026-10-25T01:00:00"),
        ("@hourly", "Europe/Berlin", "2026-10-25T02:30:00", "2026-10-25T02:00:00"),
        # Days in Berlin: midnight is 23:00 UTC in winter, 22:00 UTC in summer.
        ("@daily", "Europe/Berlin", "2026-03-29T12:00:00", "2026-03-28T23:00:00"),
        ("@daily", "Europe/Berlin", "2026-03-29T22:00:00", "2026-03-29T22:00:00"),
        ("@daily", "Europe/Berlin", "2026-03-29T21:59:59", "2026-03-28T23:00:00"),
        ("@daily", "Europe/Berlin", "2026-10-25T22:59:59", "2026-10-24T22:00:00"),
        ("@daily", "Europe/Berlin", "2026-10-25T23:00:00", "2026-10-25T23:00:00"),
        # New York: the same in spring and in autumn.
        ("@hourly", "America/New_York", "2026-03-08T06:59:59", "2026-03-08T06:00:00"),
        ("@hourly", "America/New_York", "2026-03-08T07:00:00", "2026-03-08T07:00:00"),
        ("@hourly", "America/New_York", "2026-11-01T05:30:00", "2026-11-01T05:00:00"),
        ("@hourly", "America/New_York", "2026-11-01T06:30:00", "2026-11-01T06:00:00"),
        ("@daily", "America/New_York", "2026-03-08T12:00:00", "2026-03-08T05:00:00"),
        ("@daily", "America/New_York", "2026-03-09T12:00:00", "2026-03-09T04:00:00"),
        ("@daily", "America/New_York", "2026-11-01T12:00:00", "2026-11-01T04:00:00"),
        ("@daily", "America/New_York", "2026-11-02T12:00:00", "2026-11-02T05:00:00"),
        # Working hours only: after the weekend the last interval ended on Friday, 18:00 in Vienna.
        ("0 6-18 * * MON-FRI", "Europe/Vienna", "2026-01-05T04:00:00", "2026-01-02T17:00:00"),
    ],
)
def test_the_last_interval_that_had_ended(cron: str, zone: str, moment: str, end: str) -> None:
    schedule = ScheduleSettings(cron, timezone=zone)
    at = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    assert last_ended_interval_end(schedule, at) == datetime.fromisoformat(end).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "zone", "moment", "due"),
    [
        # A run that is due at this moment is not the next one.
        ("@hourly", "UTC", "2026-01-02T12:00:00", "2026-01-02T13:00:00"),
        ("@hourly", "UTC", "2026-01-02T11:59:59", "2026-01-02T12:00:00"),
        # Midnight in Berlin is 23:00 UTC in winter and 22:00 UTC in summer.
        ("@daily", "Europe/Berlin", "2026-03-28T23:00:00", "2026-03-29T22:00:00"),
        ("@daily", "Europe/Berlin", "2026-10-25T12:00:00", "2026-10-25T23:00:00"),
        # Working hours only: after Friday, 18:00 in Vienna, the next one is due on Monday at six.
        ("0 6-18 * * MON-FRI", "Europe/Vienna", "2026-01-02T17:00:05", "2026-01-05T05:00:00"),
    ],
)
def test_the_next_run_that_is_due(cron: str, zone: str, moment: str, due: str) -> None:
    at = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    assert next_run_due(ScheduleSettings(cron, timezone=zone), at) == datetime.fromisoformat(due).replace(tzinfo=UTC)


def test_without_a_schedule_no_run_is_due() -> None:
    assert next_run_due(ScheduleSettings(None), datetime(2026, 1, 2, tzinfo=UTC)) is None


def test_without_a_schedule_there_is_no_interval() -> None:
    assert timetable_of(ScheduleSettings(None)) is None
    with pytest.raises(ValueError, match="no intervals"):
        last_ended_interval_end(ScheduleSettings(None), datetime(2026, 1, 2, tzinfo=UTC))


def caught_up(schedule: ScheduleSettings, start: datetime, end: datetime) -> list[tuple[float, float]]:
    """The intervals that Airflow catches up, one run each, as its scheduler asks for them; in seconds since 1970."""
    timetable = timetable_of(schedule)
    assert timetable is not None
    restriction = TimeRestriction(earliest=pendulum.instance(start), latest=None, catchup=True)
    last: DataInterval | None = None
    intervals: list[tuple[float, float]] = []
    while not intervals or intervals[-1][1] < end.timestamp():
        run = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
        assert run is not None
        last = run.data_interval
        assert last is not None
        intervals.append((last.start.timestamp(), last.end.timestamp()))
    return intervals


@pytest.mark.parametrize(
    ("zone", "start", "hours"),
    [
        # From midnight to midnight, whose UTC times are worked out above.
        ("Europe/Berlin", "2026-03-28T23:00:00", 23),
        ("Europe/Berlin", "2026-10-24T22:00:00", 25),
        ("America/New_York", "2026-03-08T05:00:00", 23),
        ("America/New_York", "2026-11-01T04:00:00", 25),
        ("UTC", "2026-03-29T00:00:00", 24),
    ],
)
def test_catching_up_a_day_takes_each_of_its_hours_once_and_in_order(zone: str, start: str, hours: int) -> None:
    begin = datetime.fromisoformat(start).replace(tzinfo=UTC)
    first = begin.timestamp()
    intervals = caught_up(ScheduleSettings("@hourly", timezone=zone), begin, begin + timedelta(hours=hours))
    assert intervals == [(first + 3_600 * hour, first + 3_600 * (hour + 1)) for hour in range(hours)]


def test_a_long_catch_up_has_no_gap_and_no_overlap() -> None:
    # From 16 March to 15 April in Berlin: 30 days of 24 hours, less one.
    start, end = datetime(2026, 3, 15, 23, tzinfo=UTC), datetime(2026, 4, 14, 22, tzinfo=UTC)
    intervals = caught_up(ScheduleSettings("@hourly", timezone="Europe/Berlin"), start, end)
    assert len(intervals) == 30 * 24 - 1
    assert all(one[1] == other[0] for one, other in pairwise(intervals))
