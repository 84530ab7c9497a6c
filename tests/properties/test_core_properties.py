from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import reduce
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from kafka_ingest.protocol.batch import RunOptions
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.ranges import LogTimes, choose_ranges, share_limit
from kafka_ingest.protocol.staging import MAX_TASK_BYTES, MAX_TASK_OFFSETS, DeadLetterRun, cut_into_tasks
from kafka_ingest.settings import OffsetLimit
from tests.builders import NOON, offset_range, partition_state, pipeline_settings, position, snapshot, view_of

spans = st.lists(st.integers(1, 3_000_000), min_size=1, max_size=30)


@given(spans, st.integers(1, 5_000_000), st.none() | st.integers(1, 1_000_000))
def test_the_limit_is_used_up_and_nobody_gets_more_than_waits(waiting: list[int], total: int, cap: int | None) -> None:
    backlog = {TopicPartition("t", i): n for i, n in enumerate(waiting)}
    shares = share_limit(backlog, OffsetLimit(total, cap), {})
    wanted = [min(n, cap or n) for n in waiting]
    assert all(0 <= shares[tp] <= w for tp, w in zip(backlog, wanted, strict=True))
    assert sum(shares.values()) == min(total, sum(wanted))


@given(spans, st.integers(30, 5_000_000))
def test_no_partition_starves_and_equal_backlogs_get_equal_shares(waiting: list[int], total: int) -> None:
    backlog = {TopicPartition("t", i): n for i, n in enumerate(waiting)}
    shares = share_limit(backlog, OffsetLimit(total), {})
    assert all(shares.values())
    for _, group in groupby(sorted(backlog, key=lambda tp: backlog[tp]), key=lambda tp: backlog[tp]):
        given_to = [shares[tp] for tp in group]
        assert max(given_to) - min(given_to) <= 1


@given(st.data(), st.integers(2, 8), st.integers(1, 8))
def test_each_partition_with_a_backlog_has_its_turn_whatever_is_written_to_the_others(
    data: st.DataObject, partitions: int, total: int
) -> None:
    """One partition has a backlog all the time; what the others have is chosen anew before each run."""
    watched, *others = data.draw(st.permutations([TopicPartition("t", number) for number in range(partitions)]))
    offset_minutes = st.integers(0, 100) | st.none()
    last_read = {tp: data.draw(offset_minutes.map(_minutes_before_noon)) for tp in (watched, *others)}
    runs = -(-partitions // total)  # each run reads so many partitions, so after so many runs all had a turn
    for run in range(1, runs + 1):
        backlog = {tp: data.draw(st.integers(0, 50)) for tp in others} | {watched: data.draw(st.integers(1, 50))}
        shares = share_limit({tp: n for tp, n in backlog.items() if n}, OffsetLimit(total), last_read)
        if shares[watched]:
            return
        last_read |= {tp: NOON + timedelta(hours=run) for tp, share in shares.items() if share}
    raise AssertionError(f"{watched} had no turn in {runs} runs")


def _minutes_before_noon(minutes: int | None) -> datetime | None:
    return None if minutes is None else NOON - timedelta(minutes=minutes)


few_spans = st.lists(st.integers(1, 200), min_size=1, max_size=10)
offset_bytes = st.integers(0, 10_000) | st.integers(0, 2**31)


@given(
    st.tuples(spans, st.none()) | st.tuples(spans, st.integers(0, 1_000)) | st.tuples(few_spans, offset_bytes),
    st.integers(1, 16),
)
def test_tasks_cover_every_offset_exactly_once(batch: tuple[list[int], int | None], parallelism: int) -> None:
    lengths, size_bytes = batch
    ranges = [offset_range(i, 7 * i, 7 * i + n) for i, n in enumerate(lengths)]
    tasks = cut_into_tasks(ranges, parallelism, size_bytes)
    pieces = sorted((s.partition, s.start, s.end, s.index) for task in tasks for s in task.splits)
    assert [index for *_, index in pieces] == list(range(len(pieces)))
    for r in ranges:
        mine = [(start, end) for partition, start, end, _ in pieces if partition == r.partition]
        edges = [r.start, *(end for _, end in mine)]
        assert edges == [*(start for start, _ in mine), r.end]


@given(spans, st.integers(1, 16))
def test_no_task_has_more_than_its_share_by_more_than_one_split(lengths: list[int], parallelism: int) -> None:
    tasks = cut_into_tasks([offset_range(i, 0, n) for i, n in enumerate(lengths)], parallelism)
    share = -(-sum(lengths) // len(tasks))
    assert all(sum(s.span_offsets for s in task.splits) <= 2 * share for task in tasks)
    assert share <= MAX_TASK_OFFSETS or len(tasks) < parallelism


@given(few_spans, st.integers(1, 16), st.integers(321, 2**31))
def test_no_task_holds_more_bytes_than_two_of_the_largest_pieces(
    lengths: list[int], parallelism: int, size_bytes: int
) -> None:
    tasks = cut_into_tasks([offset_range(i, 0, n) for i, n in enumerate(lengths)], parallelism, size_bytes)
    largest = max(sum(s.span_offsets for s in task.splits) for task in tasks)
    assert largest * size_bytes <= 2 * MAX_TASK_BYTES or largest <= 2


@given(spans, st.integers(1, 16), st.integers(0, 320))
def test_records_of_the_usual_size_change_no_cut(lengths: list[int], parallelism: int, size_bytes: int) -> None:
    ranges = [offset_range(i, 0, n) for i, n in enumerate(lengths)]
    assert cut_into_tasks(ranges, parallelism, size_bytes) == cut_into_tasks(ranges, parallelism)


@given(st.lists(st.booleans()), st.integers(1, 5))
def test_runs_of_dead_letters_add_up_however_the_records_are_cut(outcomes: list[bool], pieces: int) -> None:
    def run_of(dead: list[bool], first_offset: int) -> DeadLetterRun:
        runs = []
        offset = first_offset
        for is_dead, group in groupby(dead):
            length = len(list(group))
            runs.append((is_dead, length, offset))
            offset += length
        longest = max((r for r in runs if r[0]), key=lambda r: r[1], default=(False, 0, -1))
        leading = runs[0][1] if runs and runs[0][0] else 0
        trailing = runs[-1] if runs and runs[-1][0] else (False, 0, -1)
        return DeadLetterRun(len(dead), leading, trailing[1], longest[1], longest[2], trailing[2])

    size = max(1, len(outcomes) // pieces)
    cut = [run_of(outcomes[i : i + size], i) for i in range(0, len(outcomes), size)]
    assert reduce(lambda a, b: a + b, cut, DeadLetterRun()) == run_of(outcomes, 0)


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 120),
)
def test_a_plan_never_leaves_a_gap_and_never_reads_past_the_end_offset(
    logs: list[tuple[int, int, int, int]], limit: int
) -> None:
    states, positions = [], []
    for number, (log_start, committed_by, stable_by, unstable_by) in enumerate(logs):
        committed = log_start + committed_by
        end = committed + stable_by
        states.append(partition_state(number, log_start, end + unstable_by, end=end))
        positions.append(position(number, committed))
    settings = pipeline_settings()
    settings = replace(settings, plan=replace(settings.plan, limit=OffsetLimit(limit)))
    log = snapshot({"orders": states})
    choice = choose_ranges(settings, view_of(*positions), log, options=RunOptions(), times=LogTimes())
    assert not choice.faults
    assert sum(r.span_offsets for r in choice.ranges) == min(limit, choice.backlog_offsets)
    for r in choice.ranges:
        stand = positions[r.partition]
        end_offset = states[r.partition].end_offset
        assert end_offset is not None
        assert r.start == r.committed_before == stand.committed_offset
        assert r.start < r.end <= end_offset
