"""What plans carry on from one to the next about a log."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from kafka_ingest.protocol.log import LogObservation, PartitionState, newest, observe
from tests.builders import NOON, partition_state, snapshot


def seen(
    hours: float, start: int, high: int, *before: LogObservation, end: int | None = None, topic_id: str = "id-1"
) -> LogObservation:
    """Partition 0 of orders, so many hours after noon, as a plan sees it that knows what was seen before."""
    log = snapshot({"orders": [partition_state(0, start, high, end=end)]}, topic_id=topic_id)
    [observation] = observe(replace(log, taken_at=NOON + timedelta(hours=hours)), before)
    return observation


def test_one_look_tells_no_rate() -> None:
    assert seen(0, 100, 500).retention_offsets_per_second is None


def test_less_than_an_hour_tells_no_rate() -> None:
    assert seen(0.9, 4_000, 9_000, seen(0, 100, 500)).retention_offsets_per_second is None


def test_the_rate_is_what_the_log_start_moved_by_in_the_time_between() -> None:
    # 7,200 offsets in two hours of 3,600 seconds: one a second.
    assert seen(2, 7_300, 9_000, seen(1, 100, 9_000, seen(0, 100, 500))).retention_offsets_per_second == 1.0


def test_a_log_start_that_stands_still_has_the_rate_zero() -> None:
    assert seen(2, 100, 9_000, seen(0, 100, 500)).retention_offsets_per_second == 0.0


def test_hourly_plans_measure_over_12_to_24_hours() -> None:
    # 3,600 offsets an hour for a day, then nothing.
    observation = seen(0, 0, 100_000)
    rates = {}
    for hour in range(1, 61):
        observation = seen(hour, 3_600 * min(hour, 24), 100_000, observation)
        rates[hour] = observation.retention_offsets_per_second
        assert observation.seen_at - observation.rate_from_at <= timedelta(hours=24)
    assert (rates[1], rates[24]) == (1.0, 1.0)
    assert rates[30] == 12 / 18  # from hour 12 on: it moved in 12 of 18 hours
    assert rates[48] == 0.0  # from hour 24 or 36 on: it did not move at all


def test_a_long_pause_of_the_schedule_is_measured_as_a_whole() -> None:
    # Ten days without a plan: 864,000 offsets in 864,000 seconds.
    assert seen(240, 864_000, 900_000, seen(0, 0, 10)).retention_offsets_per_second == 1.0


def test_another_topic_id_or_a_log_start_that_went_back_begins_anew() -> None:
    before = seen(0, 5_000, 9_000)
    assert seen(2, 6_000, 9_000, before, topic_id="id-2").rate_from_at == NOON + timedelta(hours=2)
    assert seen(2, 4_000, 9_000, before).rate_from_at == NOON + timedelta(hours=2)


def test_c29_an_end_offset_below_the_high_watermark_is_pinned_since_it_was_first_seen() -> None:
    first = seen(0, 0, 662, end=200)
    later = seen(2, 0, 1_663, seen(1, 0, 1_163, first, end=200), end=200)
    assert (later.pinned_since, later.pinned_high_watermark) == (NOON, 662)


def test_an_end_offset_that_moved_is_pinned_anew() -> None:
    assert seen(1, 0, 900, seen(0, 0, 662, end=200), end=300).pinned_since == NOON + timedelta(hours=1)


def test_the_time_in_which_nothing_was_held_back_does_not_count() -> None:
    # Read to the end at 200 for a day; then a transaction begins there.
    quiet = seen(0, 0, 200)
    assert quiet.pinned_since is None
    assert seen(24, 0, 203, quiet, end=200).pinned_since == NOON + timedelta(hours=24)


def test_a_partition_without_an_answer_is_not_observed() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 10), PartitionState(1, has_leader=False)]})
    assert [observation.partition for observation in observe(log, ())] == [0]


def test_only_what_the_newest_plan_saw_is_current() -> None:
    old, new = seen(0, 0, 10), seen(1, 0, 10)
    assert newest([replace(old, partition=1), new]) == (new,)
    assert newest([]) == ()
