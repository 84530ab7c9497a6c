"""Runs that are asked for more than to go on: reloads of offsets and of times, backfills, ends by time."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from kafka_ingest.protocol.batch import OffsetSpan, Request, RunMode, RunOptions, TimeSpan
from tests.protocol_model.observed_log import ISOLATION
from tests.protocol_model.schedule import Schedule, index, newest, pick, rarely, stops
from tests.protocol_model.situations import Happened
from tests.protocol_model.tasks import Losers
from tests.protocol_model.world import FIRST_MS, Stop

BACKFILL = "backfill"
MAX_ATTEMPTS = 4

losers = st.builds(Losers, before=st.integers(0, 1))
#: Milliseconds, and so records, since the log began; a span of them.
times = st.integers(0, 30)
spans = st.tuples(times, st.integers(1, 12))


def _has_room(schedule: Schedule) -> bool:
    return len(schedule.world.attempts) < MAX_ATTEMPTS


def _backfills(schedule: Schedule) -> list[Request]:
    return [request for request in schedule.world.requests if request.dag_id == BACKFILL]


class ReloadRules(Schedule):
    """Events of the scheduler, and of people who ask for a span again."""

    @precondition(lambda self: _has_room(self) and bool(self.world.log.log.topics))
    @rule(where=index, begin=index, length=st.integers(1, 12), what_is_left=rarely, stop=stops, losers=losers)
    def offsets_are_reloaded(
        self, where: int, begin: int, length: int, what_is_left: bool, stop: Stop, losers: Losers
    ) -> None:
        """A span below the position, above it or across it; the longest ones to the end of the log."""
        place = pick(self.world.log.places(), where)
        partition = self.world.log.log.partition(place)
        start = min(partition.log_start + begin, partition.high_watermark)
        end = start + length if start + length <= partition.end_offset(ISOLATION) else None
        span = OffsetSpan(place.topic, place.partition, start, end)
        options = RunOptions(RunMode.RELOAD, offsets=(span,), reload_what_is_left=what_is_left)
        self._run(self.world.new_request("manual"), options, stop, losers)

    @precondition(_has_room)
    @rule(span=spans, what_is_left=rarely, stop=stops, losers=losers)
    def a_backfill_loads_an_interval(
        self, span: tuple[int, int], what_is_left: bool, stop: Stop, losers: Losers
    ) -> None:
        start_ms = FIRST_MS + span[0]
        options = RunOptions(times=TimeSpan(start_ms, start_ms + span[1]), reload_what_is_left=what_is_left)
        self._run(self.world.new_request(BACKFILL), options, stop, losers)

    @precondition(lambda self: _has_room(self) and bool(_backfills(self)))
    @rule(which=index, stop=stops, losers=losers)
    def a_backfill_is_processed_again(self, which: int, stop: Stop, losers: Losers) -> None:
        """Airflow clears the run first; attempts of before may still be alive."""
        request = newest(_backfills(self), which)
        self.world.cleared(request)
        again = replace(request, clear_number=request.clear_number + 1)
        self.world.go_on(self.world.start_run(again, losers), stop)

    @precondition(_has_room)
    @rule(until=times, stop=stops, losers=losers)
    def a_run_of_an_interval_starts(self, until: int, stop: Stop, losers: Losers) -> None:
        self._run(self.world.new_request("scheduled"), RunOptions(until_ms=FIRST_MS + until), stop, losers)

    def _run(self, request: Request, options: RunOptions, stop: Stop, losers: Losers) -> None:
        self.world.happened.add(Happened.RELOADED)
        request = replace(request, parameters=options.to_parameters())
        self.world.go_on(self.world.start_run(request, losers), stop)
