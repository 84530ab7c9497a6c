"""How much was written in a day and in its busiest hour, from offsets by time of a log in memory."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kafka_ingest.preflight.traffic import Volume, volume
from kafka_ingest.protocol.position import TopicPartition
from tests.fakes.log import FakeLog

HOUR_MS = 3_600_000
NOW_MS = 1_767_355_200_000
PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


def written(*records: tuple[float, int, int]) -> Volume:
    """Return the volume of a log with so many records each: hours ago, number, partition; in the order of offsets."""
    log = FakeLog()
    log.create_topic("orders", 2)
    for hours_ago, number, partition in records:
        moment = NOW_MS - round(hours_ago * HOUR_MS)
        log.append("orders", *[b"x"] * number, partition=partition, timestamp_ms=moment)
    return volume(log, PARTITIONS, NOW_MS)


def at_hours(found: Iterable[int]) -> dict[int, int]:
    """Return what is not nothing, by how many hours or days ago it begins."""
    return {age: number for age, number in enumerate(reversed(list(found)), start=1) if number}


def test_hours_and_days_count_the_offsets_of_all_partitions() -> None:
    found = written((8 * 24, 50, 0), (30, 7, 0), (5.5, 3, 0), (5.2, 4, 1), (0.5, 2, 1))
    assert at_hours(found.hours) == {6: 7, 1: 2}
    assert at_hours(found.days) == {2: 7, 1: 9}
    assert len(found.hours) == 24
    assert len(found.days) == 7
    assert found.held_hours == pytest.approx(8 * 24)


def test_the_busiest_day_and_the_busiest_hour_are_what_a_machine_must_be_sized_for() -> None:
    found = written((8 * 24, 1, 0), (50, 480, 0), (5.5, 12, 0), (2.5, 36, 0))
    assert found.records_per_day.value == 480
    # 48 records in the last day are 2 an hour, and one hour had 36.
    assert found.peak_factor.value == 18


def test_what_a_young_log_holds_is_taken_for_as_much_of_a_day() -> None:
    found = written((6, 30, 0), (1.5, 90, 0))
    assert found.records_per_day.value == pytest.approx(120 * 24 / 6)
    assert "120 in the 6.0 hours" in found.records_per_day.how
    assert found.peak_factor.value == pytest.approx(90 / 20)


def test_a_log_of_minutes_is_not_blown_up_to_a_day_of_that_rate() -> None:
    found = written((0.1, 60, 0))
    assert found.records_per_day.value == 60 * 24
    assert found.peak_factor.value == 1


def test_an_empty_log_tells_nothing() -> None:
    found = written()
    assert (found.records_per_day.value, found.records_per_day.how) == (None, "no records in 7 days")
    assert found.peak_factor.value is None


def test_a_quiet_day_has_no_busiest_hour() -> None:
    found = written((8 * 24, 1, 0), (50, 480, 0))
    assert found.records_per_day.value == 480
    assert found.peak_factor.value is None
