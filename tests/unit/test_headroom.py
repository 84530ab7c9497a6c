"""Warnings before records are lost, and what becomes of partitions that an open transaction holds back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kafka_ingest.errors import PartitionStalled
from kafka_ingest.protocol.batch import BatchKind, RunOptions
from kafka_ingest.protocol.decisions import PlanChoice
from kafka_ingest.protocol.log import Headroom, LogObservation, headrooms, observe
from kafka_ingest.protocol.plan import watched
from kafka_ingest.protocol.position import Position, TopicPartition
from kafka_ingest.protocol.ranges import LogTimes, choose_ranges
from kafka_ingest.settings import PartitionFaultPolicy, PipelineSettings, WatchSettings
from tests.builders import NOON, partition_state, pipeline_settings, position, snapshot, view_of

OFF = WatchSettings(min_headroom_seconds=None)


def headroom(committed: int, start: int, high: int, seconds: float | None = None) -> Headroom:
    return Headroom(TopicPartition("orders", 0), committed, start, high, high, seconds)


def watching(**settings: Any) -> PipelineSettings:
    return replace(pipeline_settings(), watch=replace(OFF, **settings))


def plan(
    settings: PipelineSettings,
    *positions: Position,
    log: tuple[int, int, int],
    hours: float = 0,
    before: tuple[LogObservation, ...] = (),
    kind: BatchKind = BatchKind.LIVE,
) -> PlanChoice:
    """Plans partition 0 of orders; ``log`` is its log start, end offset and high watermark."""
    start, end, high = log
    state = replace(
        snapshot({"orders": [partition_state(0, start, high, end=end)]}), taken_at=NOON + timedelta(hours=hours)
    )
    view = replace(view_of(*positions), observations=before)
    choice = choose_ranges(settings, view, state, options=RunOptions(), times=LogTimes())
    return watched(choice, settings, view, state, kind=kind)


@pytest.mark.parametrize(
    ("found", "is_short"),
    [
        (headroom(1_000, 901, 2_000), True),  # 99 offsets
        (headroom(1_000, 900, 2_000), False),  # 100 offsets
        (headroom(1_000, 1_000, 2_000), True),  # the next look of retention may take what was not read
        (headroom(1_000, 1_000, 1_000), False),  # nothing waits: retention came up to the position, nothing is lost
        (headroom(50, 0, 2_000), False),  # nothing was ever deleted from this log
        (headroom(1_000, 1_001, 2_000), False),  # that is the fault OffsetsExpired
    ],
)
def test_few_offsets_between_retention_and_the_position_are_warned_of(found: Headroom, is_short: bool) -> None:
    assert found.is_short(replace(OFF, min_headroom_offsets=100)) is is_short


@pytest.mark.parametrize(("seconds", "is_short"), [(59.9, True), (60.0, False), (None, False)])
def test_little_time_until_retention_comes_is_warned_of(seconds: float | None, is_short: bool) -> None:
    assert headroom(1_000, 1, 2_000, seconds).is_short(replace(OFF, min_headroom_seconds=60)) is is_short


def test_without_thresholds_nothing_is_warned_of() -> None:
    assert not headroom(1_000, 1_000, 2_000, 0.0).is_short(OFF)


def test_time_is_offsets_at_the_rate_that_plans_observed() -> None:
    # The log start moved from 0 to 7,200 in two hours: one offset a second. 1,800 offsets are half an hour.
    settings = watching(min_headroom_seconds=3_600)
    first = plan(settings, position(0, 9_000), log=(0, 20_000, 20_000))
    choice = plan(settings, position(0, 9_000), log=(7_200, 20_000, 20_000), hours=2, before=first.observations)
    assert first.warnings == ()
    [warning] = choice.warnings
    assert warning == (
        "orders[0]: retention is 1800 offsets behind the committed offset 9000, about 1800 seconds at the observed "
        "rate, and 11000 offsets wait; see docs/runbook.md, section Warnings of a plan"
    )
    assert choice.faults == ()
    assert len(choice.ranges) == 1


def test_a_retired_topic_is_not_watched() -> None:
    settings = watching(min_headroom_offsets=1_000)
    log = snapshot({"orders": [partition_state(0, 5, 20)]})
    view = view_of(position(0, 7))
    view = replace(view, served=tuple(replace(served, is_retired=True) for served in view.served))
    choice = choose_ranges(settings, view, log, options=RunOptions(), times=LogTimes())
    choice = watched(choice, settings, view, log, kind=BatchKind.LIVE)
    assert (choice.short_headroom, choice.stalled, choice.observations) == ((), (), ())


def test_positions_of_another_topic_id_are_not_compared() -> None:
    observations = observe(snapshot({"orders": [partition_state(0, 5, 9)]}, topic_id="another"), ())
    assert headrooms([position(0, 7)], observations) == ()


def test_the_most_urgent_partition_comes_first_and_many_become_one_line() -> None:
    settings = replace(pipeline_settings(), watch=WatchSettings(min_headroom_offsets=1_000))
    log = snapshot({"orders": [partition_state(number, 10, 2_000) for number in range(23)]})
    view = view_of(*(position(number, 100 - number) for number in range(23)))
    choice = watched(
        choose_ranges(settings, view, log, options=RunOptions(), times=LogTimes()),
        settings,
        view,
        log,
        kind=BatchKind.LIVE,
    )
    assert [found.where.partition for found in choice.short_headroom] == list(range(22, -1, -1))
    assert len(choice.warnings) == 21
    assert choice.warnings[-1] == "and 3 more partitions"


def stalled_twice(settings: PipelineSettings, *, kind: BatchKind = BatchKind.LIVE) -> PlanChoice:
    """A transaction is open from 200 on; an hour after the first plan 501 more offsets wait."""
    first = plan(settings, position(0, 200), log=(0, 200, 662))
    assert (first.faults, first.left_out) == ((), ())
    return plan(settings, position(0, 200), log=(0, 200, 1_163), hours=1, before=first.observations, kind=kind)


def test_c29_a_hanging_transaction_is_named_with_the_time_since_it_was_first_seen() -> None:
    choice = stalled_twice(watching())
    [warning] = choice.warnings
    assert warning.startswith("orders[0]: an open producer transaction holds back 963 offsets: readable up to 200")
    assert ", for 3600 seconds, in which the high watermark climbed by 501;" in warning
    assert choice.faults == ()


def test_c29_a_transaction_that_hangs_for_too_long_is_a_fault() -> None:
    assert stalled_twice(watching(max_stalled_seconds=3_601)).faults == ()
    [fault] = stalled_twice(watching(max_stalled_seconds=3_600)).faults
    assert (fault.error, fault.where) == (PartitionStalled, "orders[0]")
    assert fault.found == "readable up to 200 for 3600 seconds, high watermark 1163"


def test_a_partition_that_hangs_is_left_out_where_faults_are() -> None:
    settings = watching(max_stalled_seconds=60)
    settings = replace(settings, plan=replace(settings.plan, on_partition_fault=PartitionFaultPolicy.LEAVE_OUT))
    choice = stalled_twice(settings)
    assert choice.faults == ()
    assert [fault.error for fault in choice.left_out] == [PartitionStalled]


def test_a_reload_is_not_stopped_by_a_transaction_that_hangs() -> None:
    assert stalled_twice(watching(max_stalled_seconds=60), kind=BatchKind.RELOAD).faults == ()
