"""The lines of ``make model`` about current state, and the counterexamples behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from model.current_state.rules import Rule
from model.current_state.scenarios import CUTS, OPEN, SCENARIOS, Cut
from model.current_state.search import Found, search


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table: what was searched, what came out, and whether it had to."""

    name: str
    found: Found
    is_expected: bool
    is_open: bool = False

    def __str__(self) -> str:
        """Return the line as text."""
        found = self.found
        mark = ("open " if self.is_open else "ok   ") if self.is_expected else "WRONG"
        if found.broken:
            return f"{mark} {self.name}: {found.broken} ({len(found.trace)} step{'s'[: len(found.trace) > 1]})"
        stuck = f"; nothing loads {found.stuck}" if found.stuck else ""
        return f"{mark} {self.name}: holds ({found.states:,} states, {found.seconds:.1f} s){stuck}"


def lines() -> Iterator[Line]:
    """Search every scenario with all rules, then without some; yield the lines as they come."""
    for scenario in SCENARIOS:
        found = search(scenario)
        yield Line(f"current state, {scenario.name}", found, is_expected=not found.broken and not found.stuck)
    for cut in CUTS:
        found = search(cut.scenario, cut.rules, cut.checked)
        name = f"current state without {_named(cut.rules)}, {cut.scenario.name}"
        yield Line(name, found, is_expected=bool(found.broken))
        yield from _with_one_put_back(cut)
    for scenario in OPEN:
        found = search(scenario)
        yield Line(f"current state, {scenario.name}", found, is_expected=bool(found.broken), is_open=True)


def _with_one_put_back(cut: Cut) -> Iterator[Line]:
    """Yield what must hold: the larger cuts with one rule put back."""
    if len(cut.rules) == 1:
        return
    for rule in sorted(cut.rules):
        found = search(cut.scenario, cut.rules - {rule}, cut.checked)
        name = f"current state with one put back: without {_named(cut.rules - {rule})}"
        yield Line(name, found, is_expected=not found.broken)


def counterexample(without: frozenset[Rule]) -> Found:
    """Return the shortest counterexample in the scenarios in which these rules are missed; nothing where none is."""
    found = Found()
    for cut in CUTS:
        if cut.rules <= without and not found.broken:
            found = search(cut.scenario, without, cut.checked)
    return found


def _named(rules: frozenset[Rule]) -> str:
    return " + ".join(sorted(rules))
