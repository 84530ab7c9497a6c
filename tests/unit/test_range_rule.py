"""The rule of ranges, with offsets worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kafka_ingest.errors import ConfigError, OffsetsExpired
from kafka_ingest.protocol.batch import BatchKind, OffsetSpan, RunMode, RunOptions, TimeSpan
from kafka_ingest.protocol.decisions import PlanChoice
from kafka_ingest.protocol.log import LogSnapshot, TimedOffset
from kafka_ingest.protocol.position import Position, TopicPartition
from kafka_ingest.protocol.ranges import LogTimes, choose_ranges
from kafka_ingest.settings import FirstRun, FirstRunKind, OffsetLimit
from tests.builders import EMPTY_VIEW, NOON, partition_state, pipeline_settings, position, snapshot, view_of

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOON_MS = int(NOON.timestamp() * 1_000)
HOUR_MS = 3_600_000
MINUTE_MS = 60_000


def choose(
    *positions: Position, log: LogSnapshot, options: RunOptions, times: LogTimes, limit: int = 2_000_000
) -> PlanChoice:
    settings = pipeline_settings()
    settings = replace(settings, plan=replace(settings.plan, limit=OffsetLimit(limit)))
    return choose_ranges(settings, view_of(*positions), log, options=options, times=times)


def spans(choice: PlanChoice) -> list[tuple[int, int, int, int, int]]:
    """Partition, start, end, position before and after."""
    assert not choice.faults, choice.faults
    return [(r.partition, r.start, r.end, r.committed_before, r.committed_after) for r in choice.ranges]


def reload_of(
    start: TimedOffset, end: TimedOffset | None = None, *, is_left: bool = False
) -> tuple[RunOptions, LogTimes]:
    options = RunOptions(
        RunMode.RELOAD, times=TimeSpan(0, None if end is None else HOUR_MS), reload_what_is_left=is_left
    )
    return options, LogTimes(span_start={P0: start}, span_end={} if end is None else {P0: end})


LOG = snapshot({"orders": [partition_state(0, 10, 100, end=90)]})


@pytest.mark.parametrize(
    ("bound", "end"),
    [
        (TimedOffset(60, NOON_MS), 60),  # the first record that is not of the interval any more
        (TimedOffset(90, NOON_MS), 90),
        (TimedOffset(95, NOON_MS), 90),  # never past the end offset: the record at 95 is of an open transaction
        (TimedOffset(100), 90),  # no record is that late
        (TimedOffset(40, NOON_MS), None),  # a late position: the whole interval was read before
        (TimedOffset(20, NOON_MS), None),
    ],
)
def test_a_live_run_in_interval_mode_ends_before_the_first_record_after_its_interval(
    bound: TimedOffset, end: int | None
) -> None:
    options = RunOptions(until_ms=NOON_MS - HOUR_MS)
    choice = choose(position(0, 40), log=LOG, options=options, times=LogTimes(until={P0: bound}))
    assert spans(choice) == ([] if end is None else [(0, 40, end, 40, end)])
    assert choice.backlog_offsets == (0 if end is None else end - 40)
    assert not choice.ignored_bounds


@pytest.mark.parametrize("seconds_behind", [1, 60, 300])
def test_a_planner_whose_clock_is_behind_does_not_read_past_the_interval(seconds_behind: int) -> None:
    """The interval ends at noon, the record at 60 is of the next one; the planner has not seen noon yet."""
    log = replace(LOG, taken_at=NOON - timedelta(seconds=seconds_behind))
    times = LogTimes(until={P0: TimedOffset(60, NOON_MS)})
    choice = choose(position(0, 40), log=log, options=RunOptions(until_ms=NOON_MS), times=times)
    assert (spans(choice), choice.ignored_bounds) == ([(0, 40, 60, 40, 60)], {})


def test_a_record_from_the_future_ends_no_run_and_is_named() -> None:
    late = TimedOffset(60, NOON_MS + 5 * MINUTE_MS + 1)
    choice = choose(
        position(0, 40), log=LOG, options=RunOptions(until_ms=NOON_MS - HOUR_MS), times=LogTimes(until={P0: late})
    )
    assert spans(choice) == [(0, 40, 90, 40, 90)]
    assert choice.ignored_bounds == {P0: late}


def test_a_record_of_the_very_moment_of_the_plan_ends_the_run() -> None:
    choice = choose(
        position(0, 40), log=LOG, options=RunOptions(until_ms=1), times=LogTimes(until={P0: TimedOffset(60, NOON_MS)})
    )
    assert spans(choice) == [(0, 40, 60, 40, 60)]


def test_the_limit_of_the_run_replaces_that_of_the_file() -> None:
    choice = choose(position(0, 40), log=LOG, options=RunOptions(limit_offsets=7), times=LogTimes(), limit=5)
    assert spans(choice) == [(0, 40, 47, 40, 47)]
    assert choice.backlog_offsets == 50


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (20, 30, (0, 20, 30, 40, 40)),  # below the position: replaced, the position stays
        (20, 60, (0, 20, 60, 40, 60)),  # both
        (20, None, (0, 20, 90, 40, 90)),
        (50, 60, (0, 40, 60, 40, 60)),  # above it: never a gap, the range begins at the position
        (50, 95, (0, 40, 90, 40, 90)),
        (40, 40, None),
        (20, 20, None),
        (60, 30, None),  # the span's records lie in no order of time: nothing between
    ],
)
def test_a_reload_by_times_reads_from_the_span_or_the_position(
    start: int, end: int | None, expected: tuple[int, int, int, int, int] | None
) -> None:
    options, times = reload_of(TimedOffset(start, 1), None if end is None else TimedOffset(end, HOUR_MS))
    choice = choose(position(0, 40), log=LOG, options=options, times=times, limit=3)
    assert spans(choice) == ([] if expected is None else [expected])
    assert options.kind is BatchKind.RELOAD


def test_a_reload_replaces_up_to_what_was_ever_loaded() -> None:
    options, times = reload_of(TimedOffset(20, 1), TimedOffset(60, HOUR_MS))
    lowered = replace(position(0, 40), loaded_to=70, timeline=1)
    [after_reset] = choose(lowered, log=LOG, options=options, times=times).ranges
    assert (after_reset.replaced_to, after_reset.loaded_to, after_reset.timeline) == (60, 70, 1)
    [mixed] = choose(position(0, 40), log=LOG, options=options, times=times).ranges
    assert mixed.replaced_to == 40


def test_a_live_run_after_a_backward_reset_replaces_up_to_what_was_ever_loaded() -> None:
    lowered = replace(position(0, 40), loaded_to=70, timeline=1)
    [live] = choose(lowered, log=LOG, options=RunOptions(), times=LogTimes()).ranges
    assert (live.start, live.end, live.replaced_to) == (40, 90, 70)
    [plain] = choose(position(0, 40), log=LOG, options=RunOptions(), times=LogTimes()).ranges
    assert (plain.start, plain.replaced_to) == (40, 40)


def test_a_span_whose_beginning_was_deleted_stops_the_reload() -> None:
    options, times = reload_of(TimedOffset(10, 1), TimedOffset(30, HOUR_MS))
    choice = choose(position(0, 40), log=LOG, options=options, times=replace(times, loaded_from={P0: 9}))
    [fault] = choice.faults
    assert fault.error is OffsetsExpired
    assert "loaded from offset 9" in fault.expected
    assert not choice.ranges


def test_a_span_that_begins_at_the_log_start_with_nothing_loaded_below_is_whole() -> None:
    options, times = reload_of(TimedOffset(10, 1), TimedOffset(30, HOUR_MS))
    for loaded_from in ({}, {P0: 10}):
        choice = choose(position(0, 40), log=LOG, options=options, times=replace(times, loaded_from=loaded_from))
        assert spans(choice) == [(0, 10, 30, 40, 40)]


def test_what_is_left_of_an_expired_span_is_reloaded_when_told() -> None:
    options, times = reload_of(TimedOffset(10, 1), TimedOffset(30, HOUR_MS), is_left=True)
    choice = choose(position(0, 40), log=LOG, options=options, times=replace(times, loaded_from={P0: 0}))
    assert spans(choice) == [(0, 10, 30, 40, 40)]


def by_offsets(*listed: OffsetSpan, is_left: bool = False) -> RunOptions:
    return RunOptions(RunMode.RELOAD, offsets=listed, reload_what_is_left=is_left)


def test_a_reload_by_offsets_leaves_partitions_alone_that_are_not_listed() -> None:
    log = snapshot({"orders": [partition_state(0, 10, 100), partition_state(1, 50, 100)]})
    options = by_offsets(OffsetSpan("orders", 0, 20, 30))
    expired_elsewhere = position(1, 40)
    choice = choose(position(0, 40), expired_elsewhere, log=log, options=options, times=LogTimes())
    assert spans(choice) == [(0, 20, 30, 40, 40)]


def test_a_reload_by_offsets_above_the_position_begins_at_it_and_without_an_end_reads_all() -> None:
    options = by_offsets(OffsetSpan("orders", 0, 50))
    choice = choose(position(0, 40), log=LOG, options=options, times=LogTimes())
    assert spans(choice) == [(0, 40, 90, 40, 90)]


def test_every_fault_of_a_reload_by_offsets_is_listed() -> None:
    log = snapshot({"orders": [partition_state(0, 10, 100, end=90), partition_state(1, 10, 100)]})
    options = by_offsets(OffsetSpan("orders", 0, 20, 91), OffsetSpan("orders", 1, 9, 30), OffsetSpan("orders", 2, 0))
    choice = choose(position(0, 40), position(1, 40), log=log, options=options, times=LogTimes())
    found = {(fault.where, fault.error, fault.found) for fault in choice.faults}
    assert found == {
        ("the span to reload of orders[0]", ConfigError, "91"),
        ("the span to reload of orders[1]", OffsetsExpired, "log start offset 10"),
        ("the span to reload of orders[2]", ConfigError, "none of that name and number"),
    }


def test_what_is_left_of_a_span_of_offsets_begins_at_the_log_start() -> None:
    options = by_offsets(OffsetSpan("orders", 0, 3, 30), is_left=True)
    choice = choose(position(0, 40), log=LOG, options=options, times=LogTimes())
    assert spans(choice) == [(0, 10, 30, 40, 40)]


def test_a_reload_cannot_step_over_records_that_expired_before_they_were_read() -> None:
    options, times = reload_of(TimedOffset(10, 1), is_left=True)
    choice = choose(position(0, 5), log=LOG, options=options, times=times)
    assert [fault.error for fault in choice.faults] == [OffsetsExpired]


def test_a_reload_makes_no_partition_complete() -> None:
    options, times = reload_of(TimedOffset(20, 1), TimedOffset(30, HOUR_MS))
    full = snapshot({"orders": [partition_state(0, 10, 40)]})
    assert choose(position(0, 40), log=full, options=options, times=times).valid_through == {}
    assert choose(position(0, 40), log=full, options=RunOptions(), times=LogTimes()).valid_through == {P0: NOON}


def test_a_first_run_that_reloads_begins_every_position_where_first_run_says() -> None:
    log = snapshot({"orders": [partition_state(0, 10, 100), partition_state(1, 10, 80)]})
    settings = pipeline_settings(first_run=FirstRun(FirstRunKind.LATEST))
    options = by_offsets(OffsetSpan("orders", 0, 20, 30))
    choice = choose_ranges(settings, EMPTY_VIEW, log, options=options, times=LogTimes())
    assert [(p.partition, p.committed_offset, p.loaded_to) for p in choice.new_positions] == [
        (0, 100, 100),
        (1, 80, 80),
    ]
    assert spans(choice) == [(0, 20, 30, 100, 100)]


def test_the_time_of_the_plan_is_compared_in_milliseconds() -> None:
    log = replace(LOG, taken_at=NOON + timedelta(milliseconds=1))
    late = LogTimes(until={P0: TimedOffset(60, NOON_MS + 5 * MINUTE_MS + 1)})
    assert spans(choose(position(0, 40), log=log, options=RunOptions(until_ms=1), times=late)) == [(0, 40, 60, 40, 60)]
