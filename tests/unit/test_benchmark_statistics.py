"""What the page of benchmarks says of runs: medians and ranges, and ratios of runs of the same round."""

from __future__ import annotations

import pytest

from tests.benchmarks.statistics import of_contender, ratio, spread


def run(contender: str, number: int, rate: float) -> dict[str, object]:
    return {"contender": contender, "round": number, "records_per_second": rate}


RUNS = [run("ours", 0, 90.0), run("peer", 0, 30.0), run("ours", 1, 40.0), run("peer", 1, 10.0), run("ours", 2, 50.0)]


def test_the_median_stands_between_the_least_and_the_greatest() -> None:
    found = spread([3.0, 1.0, 10.0])
    assert (found.median, found.least, found.greatest, found.count) == (3.0, 1.0, 10.0, 3)


def test_figures_are_those_of_one_contender() -> None:
    found = of_contender(RUNS, "ours")
    assert (found.median, found.count) == (50.0, 3)


def test_a_ratio_compares_runs_of_the_same_round_only() -> None:
    found = ratio(RUNS, "ours", "peer")
    assert (found.least, found.greatest, found.count) == (3.0, 4.0, 2)


def test_contenders_that_never_met_have_no_ratio() -> None:
    with pytest.raises(ValueError, match="side by side"):
        ratio([run("ours", 0, 1.0), run("peer", 1, 1.0)], "ours", "peer")
