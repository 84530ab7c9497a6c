"""The measure of growth tells quadratic work from linear work, whatever else the machine does."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import count

import pytest

from tests.growth import LARGE, MOST_GROWTH, growth


class Machine:
    """A clock that work itself moves on, a microsecond a step; the first calls take some times as long."""

    def __init__(self, steps: Callable[[int], float], *disturbed: float) -> None:
        self.now = 0.0
        self.calls = 0
        self._steps = steps
        self._disturbed = list(disturbed)

    def work(self, size: int) -> None:
        self.calls += 1
        slower = self._disturbed.pop(0) if self._disturbed else 1.0
        self.now += slower * self._steps(size) / 1_000_000

    def growth(self) -> float:
        return growth(self.work, lambda size: size, clock=lambda: self.now)


def linear(size: int) -> float:
    return size / 4


def quadratic(size: int) -> float:
    return size * size / 10_000


def quadratic_behind_a_constant(size: int) -> float:
    """Take 2 ms a call and a nanosecond for every 32 pairs of bytes: 134 ms more at the large size."""
    return 2_000 + size * size / 32_000


def test_linear_work_grows_as_its_size() -> None:
    assert Machine(linear).growth() == pytest.approx(8)
    assert MOST_GROWTH >= 2 * 8


def test_quadratic_work_grows_as_the_square_of_its_size() -> None:
    assert Machine(quadratic).growth() == pytest.approx(64)
    assert MOST_GROWTH * 2 < 64


def test_quadratic_work_stands_out_from_what_every_call_costs() -> None:
    assert Machine(quadratic_behind_a_constant).growth() > MOST_GROWTH


@pytest.mark.parametrize(
    "disturbed", [(50.0,), (1.0, 1.0, 50.0), (50.0, 1.0, 9.0, 1.0, 30.0, 1.0), (7.0, 2.0, 3.0, 4.0)]
)
def test_linear_work_passes_on_a_machine_that_makes_some_calls_slower(disturbed: tuple[float, ...]) -> None:
    assert Machine(linear, *disturbed).growth() < MOST_GROWTH


@pytest.mark.parametrize("disturbed", [(1.0, 2.5), (1.0, 7.0), (1.0, 7.0, 1.0, 7.0), (50.0, 50.0)])
def test_quadratic_work_fails_on_a_machine_that_makes_some_small_calls_slower(disturbed: tuple[float, ...]) -> None:
    assert Machine(quadratic, *disturbed).growth() > MOST_GROWTH


def test_work_that_is_linear_beyond_doubt_is_tried_once() -> None:
    machine = Machine(lambda size: 20_000 + size / 100)
    assert machine.growth() < 2
    assert machine.calls == 2


def test_work_that_is_too_short_to_measure_has_no_growth() -> None:
    # 4 ms for 64 KB are short, however short 8 KB are.
    assert Machine(lambda size: 4_000 if size == LARGE else 1).growth() == 0
    assert Machine(lambda size: 6_000 if size == LARGE else 1).growth() == pytest.approx(6_000)


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_rests_meanwhile_and_is_afterwards_what_it_was(was_on: bool) -> None:
    seen = []

    def work(size: int) -> None:
        seen.append(gc.isenabled())
        if len(seen) == 2:
            raise LookupError

    enabled = gc.isenabled()
    try:
        (gc.enable if was_on else gc.disable)()
        with pytest.raises(LookupError):
            growth(work, lambda size: size, clock=count().__next__)
        assert seen == [False, False]
        assert gc.isenabled() is was_on
    finally:
        (gc.enable if enabled else gc.disable)()
