"""The rule of ranges over random logs, with record times in any order: never a gap, never past the end, once each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions, TimeSpan
from kafka_ingest.protocol.log import TimedOffset
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.protocol.ranges import LogTimes, choose_ranges
from tests.builders import NOON, partition_state, pipeline_settings, position, snapshot, view_of

PLACE = TopicPartition("orders", 0)
NOON_MS = int(NOON.timestamp() * 1_000)
FUTURE_MS = NOON_MS + 300_000
#: Around the plan, which some records of a test are later than, and around where the future begins for it.
times_ms = st.integers(NOON_MS - 20, NOON_MS + 5) | st.integers(FUTURE_MS - 5, FUTURE_MS + 5)


@dataclass(frozen=True)
class Log:
    """One partition: the times of the records that it holds, in offset order, and where the pipeline stands."""

    log_start: int
    times: list[int]
    unreadable: int
    committed: int
    loaded_to: int

    @property
    def end(self) -> int:
        return self.log_start + len(self.times)

    def first_at(self, time_ms: int) -> TimedOffset:
        """What Kafka answers: the first record by offset that is late enough; unreadable ones are later than all."""
        for offset, found in enumerate(self.times, self.log_start):
            if found >= time_ms:
                return TimedOffset(offset, found)
        return TimedOffset(self.end + self.unreadable)

    def ranges(self, options: RunOptions, times: LogTimes, *, committed: int | None = None) -> list[OffsetRange]:
        stands = self.committed if committed is None else committed
        state = partition_state(0, self.log_start, self.end + self.unreadable, end=self.end)
        where = replace(position(0, stands), loaded_to=max(self.loaded_to, stands))
        log = snapshot({"orders": [state]})
        choice = choose_ranges(pipeline_settings(), view_of(where), log, options=options, times=times)
        assert not choice.faults
        return list(choice.ranges)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log_start = draw(st.integers(0, 5))
    times = draw(st.lists(times_ms, max_size=12))
    committed = log_start + draw(st.integers(0, len(times)))
    return Log(log_start, times, draw(st.integers(0, 3)), committed, committed + draw(st.integers(0, 4)))


@given(logs(), times_ms)
def test_a_live_run_of_an_interval_ends_before_the_first_record_after_it_unless_that_is_from_the_future(
    log: Log, until_ms: int
) -> None:
    bound = log.first_at(until_ms)
    found = log.ranges(RunOptions(until_ms=until_ms), LogTimes(until={PLACE: bound}))
    is_future = bound.record_time_ms is not None and bound.record_time_ms > FUTURE_MS
    end = log.end if is_future else min(bound.offset, log.end)
    assert [(r.start, r.end) for r in found] == ([(log.committed, end)] if end > log.committed else [])


@given(logs(), st.lists(times_ms, min_size=1, max_size=6))
def test_intervals_one_after_another_take_each_offset_once_and_leave_no_gap(log: Log, ends: list[int]) -> None:
    committed = log.committed
    for until_ms in sorted(ends):
        times = LogTimes(until={PLACE: log.first_at(until_ms)})
        for r in log.ranges(RunOptions(until_ms=until_ms), times, committed=committed):
            assert r.start == committed < r.end <= log.end
            committed = r.committed_after
    [*rest] = log.ranges(RunOptions(), LogTimes(), committed=committed)
    assert [(r.start, r.end) for r in rest] == ([(committed, log.end)] if committed < log.end else [])


@given(logs(), times_ms, times_ms)
def test_a_reload_by_times_covers_its_span_without_a_gap_to_the_position(log: Log, start_ms: int, end_ms: int) -> None:
    first, beyond = log.first_at(start_ms), log.first_at(end_ms)
    options = RunOptions(RunMode.RELOAD, times=TimeSpan(start_ms, end_ms))
    found = log.ranges(options, LogTimes(span_start={PLACE: first}, span_end={PLACE: beyond}))
    require_rule(log, found, first.offset, min(beyond.offset, log.end))


@given(logs(), st.data())
def test_a_reload_by_offsets_covers_its_span_without_a_gap_to_the_position(log: Log, data: st.DataObject) -> None:
    start = data.draw(st.integers(log.log_start, log.end))
    end = data.draw(st.integers(start, log.end))
    options = RunOptions(RunMode.RELOAD, offsets=(OffsetSpan("orders", 0, start, end),))
    require_rule(log, log.ranges(options, LogTimes()), start, end)


def require_rule(log: Log, found: list[OffsetRange], first: int, beyond: int) -> None:
    start = min(first, log.committed)
    assert [(r.start, r.end) for r in found] == ([(start, beyond)] if beyond > start else [])
    for r in found:
        assert r.start <= r.committed_before == log.committed
        assert r.committed_after == max(log.committed, r.end)
        # What may be in the table is replaced, what cannot be is not looked for.
        replaced = set(range(r.start, r.replaced_to))
        assert replaced == {offset for offset in range(r.start, r.end) if offset < max(log.loaded_to, log.committed)}
