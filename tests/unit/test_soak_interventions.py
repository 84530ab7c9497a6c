"""What the operator of a soak asks for is decided by the seed; where it lies, by what is there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sandbox.soak.choices import Cycle, SoakOptions, choose_cycles
from sandbox.soak.interventions import (
    Intervention,
    InterventionKind,
    Span,
    change_arguments,
    rebuild_form,
    reload_arguments,
    reload_form,
)
from sandbox.soak.pipeline import SoakMode
from tests.command_line import parsed

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = BEGAN + timedelta(seconds=200)


#: A table that holds the current state is made anew instead of being rolled back.
NEVER = {
    SoakMode.APPEND: {InterventionKind.REBUILD, InterventionKind.NEW_TABLE},
    SoakMode.UPSERT: {InterventionKind.ROLL_BACK},
}


def cycles(seed: int, count: int = 200, mode: SoakMode = SoakMode.APPEND) -> tuple[Cycle, ...]:
    return choose_cycles(SoakOptions(cycles=count, seed=seed, mode=mode))


def test_the_same_seed_asks_for_the_same_and_another_seed_for_other_things() -> None:
    assert [c.interventions for c in cycles(7)] == [c.interventions for c in cycles(7)]
    assert [c.reload for c in cycles(7)] == [c.reload for c in cycles(7)]
    assert [c.interventions for c in cycles(7)] != [c.interventions for c in cycles(8)]


def test_nothing_is_asked_for_before_there_is_a_position() -> None:
    assert all((c.interventions, c.reload) == ((), None) for seed in range(20) for c in cycles(seed, 3)[:1])


@pytest.mark.parametrize("mode", SoakMode)
@pytest.mark.parametrize("seed", range(10))
def test_a_dozen_cycles_meet_every_kind_of_the_mode_before_beside_and_killed(seed: int, mode: SoakMode) -> None:
    """Kinds come in rounds of seven, and nine of eleven cycles have one or two, on average."""
    chosen = [one for cycle in cycles(seed, 12, mode) for one in cycle.interventions]
    assert {one.kind for one in chosen} == set(InterventionKind) - NEVER[mode]
    assert {one.moment is None for one in chosen} == {True, False}
    assert any(one.kill_at is not None for one in chosen)


def test_what_happens_before_a_run_is_never_made_to_wait_for_an_outstanding_batch() -> None:
    chosen = [one for cycle in cycles(1) for one in cycle.interventions]
    assert all(one.supersede for one in chosen if one.moment is None)
    assert {one.supersede for one in chosen if one.moment is not None} == {True, False}


def test_a_span_by_offsets_is_a_share_of_what_is_committed() -> None:
    form = reload_form(Span(by_times=False, partition=2, begin=0.25, end=0.5), {2: 400}, BEGAN, NOW)
    assert form == {"mode": "reload", "reason": "soak", "offsets": "soak 2 100 200"}


@pytest.mark.parametrize("committed", [{}, {2: 0}, {2: 1}])
def test_a_span_of_next_to_nothing_goes_to_the_end_of_the_log(committed: dict[int, int]) -> None:
    form = reload_form(Span(by_times=False, partition=2, begin=0.25, end=0.5), committed, BEGAN, NOW)
    assert form["offsets"] == "soak 2 0"


def test_a_span_by_times_is_a_share_of_the_time_since_the_soak_began() -> None:
    times = Span(by_times=True, partition=0, begin=0.25, end=0.5)
    form = reload_form(times, {}, BEGAN, NOW)
    assert (form["from"], form["to"]) == ("2026-01-01T00:00:50.000+00:00", "2026-01-01T00:01:40.000+00:00")
    assert "to" not in reload_form(Span(by_times=True, partition=0, begin=0.25, end=1.0), {}, BEGAN, NOW)


@pytest.mark.parametrize("mode", SoakMode)
def test_every_choice_is_a_command_that_the_command_line_knows(mode: SoakMode) -> None:
    for cycle in cycles(3, 60, mode):
        for one in cycle.interventions:
            if one.kind.is_run:
                form = reload_form(one.span, {0: 9}, BEGAN, NOW) if one.span else rebuild_form(one.kind)
                parsed("run", "soak", *reload_arguments(form))
            else:
                parsed(*change_arguments(one, "r1", supersede=one.supersede))


def test_a_reset_of_one_partition_names_it_and_its_request() -> None:
    wanted = Intervention(InterventionKind.RESET_BACKWARDS, offsets=30, partition=1)
    assert change_arguments(wanted, "r1", supersede=False) == [
        *["change", "soak", "reset", "--by", "-30", "--only", "soak", "1"],
        *["--reason", "soak", "--request-id", "r1", "--apply", "--json"],
    ]
