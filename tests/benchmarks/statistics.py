"""Medians, ranges and ratios of runs that were measured side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Runs = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some figures, the least and the greatest, and how many there are."""

    median: float
    least: float
    greatest: float
    count: int


def spread(figures: Sequence[float]) -> Spread:
    """Return median and range of at least one figure."""
    return Spread(median(figures), min(figures), max(figures), len(figures))


def of_contender(runs: Runs, contender: str, figure: str = "records_per_second") -> Spread:
    """Return a figure of one contender over its runs.

    Raises:
        ValueError: It has no run.
    """
    figures = [run[figure] for run in runs if run["contender"] == contender]
    if not figures:
        raise ValueError(f"no run of {contender}")
    return spread(figures)


def ratio(runs: Runs, contender: str, against: str, figure: str = "records_per_second") -> Spread:
    """Return how many times the other's figure a contender reached, round by round: both met the same machine."""
    ours = {run["round"]: run[figure] for run in runs if run["contender"] == contender}
    theirs = {run["round"]: run[figure] for run in runs if run["contender"] == against}
    both = sorted(ours.keys() & theirs.keys())
    if not both:
        raise ValueError(f"{contender} and {against} were not measured side by side")
    return spread([ours[number] / theirs[number] for number in both])


def contenders_of(runs: Runs) -> list[str]:
    """Names the contenders in the order of their first runs."""
    return list(dict.fromkeys(run["contender"] for run in runs))
