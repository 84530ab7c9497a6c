"""The longest time between two runs of a schedule, worked out by hand."""

from __future__ import annotations

import pytest

from kafka_ingest.preflight.kafka import longest_interval_seconds
from kafka_ingest.settings import ScheduleSettings

HOUR, DAY = 3600, 86_400


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [
        ("@hourly", HOUR),
        ("@daily", DAY),
        ("@weekly", 7 * DAY),
        ("@monthly", 31 * DAY),
        ("@quarterly", 92 * DAY),  # July to September, and October to December
        ("@yearly", 365 * DAY),
        ("*/15 * * * *", 15 * 60),
        ("0 9 * * 1-5", 3 * DAY),  # Friday to Monday
        ("* 9-17 * * *", 15 * HOUR + 60),  # 17:59 to 9:00
        ("0 0 29 2 *", 1461 * DAY),  # from one leap year to the next
    ],
)
def test_the_longest_interval_decides(schedule: str, seconds: float) -> None:
    assert longest_interval_seconds(ScheduleSettings(schedule)) == seconds


def test_a_pipeline_without_a_schedule_has_no_interval() -> None:
    assert longest_interval_seconds(ScheduleSettings(None)) is None
