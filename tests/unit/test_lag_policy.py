"""What a live plan does about partitions that lag too far behind, with numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from kafka_ingest.errors import LagTooLarge
from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions
from kafka_ingest.protocol.decisions import PlanChoice
from kafka_ingest.protocol.position import Position
from kafka_ingest.protocol.ranges import LogTimes, choose_ranges
from kafka_ingest.settings import LagAction, LagPolicy
from tests.builders import EMPTY_VIEW, NOON, partition_state, pipeline_settings, position, snapshot, view_of

#: Partition 0 lags by 80 offsets (the last stable offset is 90), partition 1 by 5.
LOG = snapshot({"orders": [partition_state(0, 0, 100, end=90), partition_state(1, 0, 10)]})
STANDS = (replace(position(0, 10), leader_epoch=4), position(1, 5))


def choose(policy: LagPolicy | None, *positions: Position, options: RunOptions | None = None) -> PlanChoice:
    settings = pipeline_settings()
    settings = replace(settings, plan=replace(settings.plan, lag_policy=policy))
    view = view_of(*(positions or STANDS))
    return choose_ranges(settings, view, LOG, options=options or RunOptions(), times=LogTimes())


def spans(choice: PlanChoice) -> list[tuple[int, int, int]]:
    return [(r.partition, r.start, r.end) for r in choice.ranges]


def test_without_a_policy_nothing_is_skipped_or_said() -> None:
    choice = choose(None)
    assert (spans(choice), choice.lagging, choice.faults) == ([(0, 10, 90), (1, 5, 10)], (), ())


def test_a_lag_of_just_the_limit_is_within_it() -> None:
    assert choose(LagPolicy(LagAction.FAIL, max_lag_offsets=80)).faults == ()


def test_fail_stops_the_plan_and_names_the_partition_and_the_numbers() -> None:
    [fault] = choose(LagPolicy(LagAction.FAIL, max_lag_offsets=79)).faults
    assert (fault.error, fault.where) == (LagTooLarge, "orders[0]")
    assert (fault.expected, fault.found) == ("a lag within max_lag_offsets 79 (lag_policy)", "80 offsets")
    assert 'change orders skip-lag --keep 1000 --reason "..."' in fault.next_command


def test_warn_loads_everything_and_says_so() -> None:
    choice = choose(LagPolicy(LagAction.WARN, max_lag_offsets=79))
    assert spans(choice) == [(0, 10, 90), (1, 5, 10)]
    assert choice.warnings == ("orders[0]: lag of 80 offsets passes max_lag_offsets 79",)
    assert choice.skips == ()


def test_skip_to_reads_the_newest_offsets_and_gives_up_the_rest() -> None:
    choice = choose(LagPolicy(LagAction.SKIP_TO, max_lag_offsets=79, keep_offsets=20))
    assert spans(choice) == [(0, 70, 90), (1, 5, 10)]
    [skip] = choice.skips
    assert skip.before == STANDS[0]
    # The line stays: the position goes forwards. The epoch belonged to the offset that was read last.
    assert skip.after == replace(STANDS[0], committed_offset=70, loaded_to=70, leader_epoch=None)
    assert skip.given_up == (10, 70)
    assert choice.warnings == (
        "orders[0]: lag of 80 offsets passes max_lag_offsets 79; lag_policy skip_to gives up the offsets [10, 70)",
    )
    first = choice.ranges[0]
    assert (first.committed_before, first.leader_epoch, first.timeline) == (70, None, 0)


@pytest.mark.parametrize(
    ("seconds", "is_lagging"), [(3_600, False), (3_601, True)], ids=["within the limit", "a second too long"]
)
def test_a_limit_in_time_counts_from_when_the_partition_was_complete(seconds: int, is_lagging: bool) -> None:
    since = replace(position(0, 10), valid_through=NOON - timedelta(seconds=seconds))
    choice = choose(LagPolicy(LagAction.WARN, max_lag_seconds=3_600), since)
    assert bool(choice.lagging) is is_lagging


def test_a_partition_of_unknown_completeness_passes_no_limit_in_time() -> None:
    assert choose(LagPolicy(LagAction.FAIL, max_lag_seconds=1)).faults == ()


def test_a_partition_with_nothing_to_read_lags_by_nothing_however_old() -> None:
    old = replace(position(0, 90), valid_through=NOON - timedelta(days=9))
    assert choose(LagPolicy(LagAction.FAIL, max_lag_seconds=1), old).faults == ()


def test_what_was_loaded_above_a_skip_is_still_replaced() -> None:
    reset = replace(position(0, 10), loaded_to=80, timeline=1)
    choice = choose(LagPolicy(LagAction.SKIP_TO, max_lag_offsets=79, keep_offsets=20), reset)
    [skip] = choice.skips
    assert skip.after is not None
    assert (skip.after.committed_offset, skip.after.loaded_to, skip.after.timeline) == (70, 80, 1)
    assert choice.ranges[0].replaced_to == 80


def test_a_reload_and_a_first_run_know_no_lag() -> None:
    policy = LagPolicy(LagAction.FAIL, max_lag_offsets=1)
    reload = RunOptions(RunMode.RELOAD, offsets=(OffsetSpan("orders", 0, 0, 5),))
    assert choose(policy, options=reload).faults == ()
    settings = pipeline_settings()
    settings = replace(settings, plan=replace(settings.plan, lag_policy=policy))
    assert choose_ranges(settings, EMPTY_VIEW, LOG, options=RunOptions(), times=LogTimes()).faults == ()
