"""The targets of the page: what was aimed for, what was found, and whether it is enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.contenders import Contender
from tests.benchmarks.page_tables import markdown_table
from tests.benchmarks.results import RESULTS, read_results
from tests.benchmarks.statistics import Spread, contenders_of, ratio


@dataclass(frozen=True, slots=True)
class Target:
    """A ratio that is at least, or at most, what was aimed for.

    Attributes:
        what: What is measured.
        comparison: Where both are measured side by side; one of them may be newer than the results.
        contender: Whose figure.
        against: Whose figure it is divided by.
        least: Bound from below; ``None`` when ``most`` is one from above.
        most: Bound from above.
        figure: Figure of the contender; the other gives its ``records_per_second``, or the same one where it has it.
    """

    what: str
    comparison: str
    contender: Contender
    against: Contender
    least: float | None = None
    most: float | None = None
    figure: str = "records_per_second"


@dataclass(frozen=True, slots=True)
class GrowthTarget:
    """A figure of a result that is at most what was aimed for.

    Attributes:
        what: What is measured.
        against: What it is compared with.
        most: Bound from above.
        results: Whose results.
        figure: Takes the figure from them.
    """

    what: str
    against: str
    most: float
    results: str
    figure: Callable[[Mapping[str, Any]], float]


def targets_table(targets: Sequence[Target], growth_targets: Sequence[GrowthTarget]) -> str:
    """Shows all targets."""
    rows = [*map(_row, targets), *map(_growth_row, growth_targets)]
    return markdown_table(("what", "against", "target", "found", ""), rows)


def _row(target: Target) -> tuple[str, ...]:
    found = _found(target)
    bound = f"≥ {target.least:g}" if target.least is not None else f"≤ {target.most:g}"
    row = (target.what, target.against.name, bound)
    if found is None:
        return (*row, "not measured", "")
    return (*row, f"{found.median:.2f} ({found.least:.2f}-{found.greatest:.2f})", _verdict(target, found))


def _growth_row(target: GrowthTarget) -> tuple[str, ...]:
    row = (target.what, target.against, f"≤ {target.most:g}")
    if not _is_measured(target.results):
        return (*row, "not measured", "")
    found = target.figure(read_results(target.results))
    return (*row, f"{found:.2f}", "met" if found <= target.most else "missed")


def _found(target: Target) -> Spread | None:
    if not _is_measured(target.comparison):
        return None
    runs = read_results(target.comparison)["runs"]
    if not {target.contender.name, target.against.name} <= set(contenders_of(runs)):
        return None
    if target.figure == "staging_per_second":
        runs = [{**run, target.figure: run.get(target.figure, run["records_per_second"])} for run in runs]
    return ratio(runs, target.contender.name, target.against.name, target.figure)


def _is_measured(name: str) -> bool:
    return (RESULTS / f"{name}.json").exists()


def _verdict(target: Target, found: Spread) -> str:
    if target.least is not None:
        return "met" if found.median >= target.least else "missed"
    return "met" if target.most is not None and found.median <= target.most else "missed"
