"""Checks the models of the protocol and of current state: they hold in every state, and need every guard and rule.

    python model/check.py                      # everything; exit code 1 if anything is not as it must be
    python model/check.py --current-state      # only the model of current state, which needs no spin
    python model/check.py --show claim-check state-check    # the shortest counterexample without these rules of it
    python model/check.py --show VIEW_RECHECK  # the shortest counterexample without these guards, step by step
    python model/check.py --minimal            # also: with any one guard of a set put back, nothing breaks

The model of the protocol needs spin and a C compiler. Nothing needs more than Python's standard library.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

from model.current_state.report import counterexample, lines
from model.current_state.rules import Rule
from model.current_state.search import Found
from model.cuts import CUTS, Checked, Cut
from model.spin import MODEL, Search, SpinFailed, search, stop_searches

#: Two searches side by side use less than 8 GB.
_WORKERS = min(2, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table: what was searched, what came out, and whether it had to."""

    name: str
    found: Search
    is_expected: bool

    def __str__(self) -> str:
        """Return the line as text."""
        found = self.found
        mark = "ok   " if self.is_expected else "WRONG"
        if not found.broken:
            size = f"{found.states:,} states, depth {found.depth}, {found.memory_mb:,.0f} MB, {found.seconds:.0f} s"
            return f"{mark} {self.name}: holds ({size})"
        return f"{mark} {self.name}: {found.broken} ({len(found.story)} steps, depth {found.depth})"


def guards() -> tuple[str, ...]:
    """Return the names of all guards of the model."""
    return tuple(re.findall(r"^#ifdef NO_(\w+)$", (MODEL / "guards.pml").read_text(encoding="utf-8"), re.MULTILINE))


def holds(name: str, *defines: str) -> Line:
    """Search every state; there must be no counterexample."""
    found = search(defines, shortest=False)
    return Line(name, found, is_expected=not found.broken)


def breaks(cut: Cut) -> Line:
    """Search for the shortest counterexample with the fewest faults; there must be one."""
    found = shortest_counterexample(cut)
    return Line("without " + " + ".join(cut.guards), found, is_expected=bool(found.broken))


def shortest_counterexample(cut: Cut) -> Search:
    """Return it, or the last search when there is none."""
    found = search(_defines(cut, 0), shortest=True)
    for faults in range(1, cut.max_faults + 1):
        if found.broken:
            break
        found = search(_defines(cut, faults), shortest=True)
    return found


def _defines(cut: Cut, faults: int) -> list[str]:
    scenario = [cut.scenario] if cut.scenario else []
    return [f"CHECKED={cut.checked.value}", f"MAX_FAULTS={faults}", *scenario, *(f"NO_{guard}" for guard in cut.guards)]


def _with_one_put_back() -> Iterator[Callable[[], Line]]:
    """Yield search that must find nothing: each larger cut with one of its guards put back."""
    rests = {
        (tuple(sorted(set(cut.guards) - {guard})), cut.checked, cut.max_faults, cut.scenario)
        for cut in CUTS
        if len(cut.guards) > 1
        for guard in cut.guards
    }
    for rest in (Cut(*values) for values in sorted(rests)):
        name = f"with one put back: without {' + '.join(rest.guards)} ({rest.checked.name.lower()})"
        yield partial(holds, name, *_defines(rest, rest.max_faults))


def _searches(faults: int, *, is_minimal: bool) -> Iterator[Callable[[], Line]]:
    yield partial(holds, f"the protocol, up to {faults} faults", f"MAX_FAULTS={faults}")
    yield partial(holds, "the protocol from the first plan on, up to 1 fault", "MAX_FAULTS=1", "FIRST_PLAN")
    yield partial(holds, "with reloads and a reset, without faults", "MAX_FAULTS=0", "RESET")
    yield partial(holds, "with reloads and an accepted topic, without faults", "MAX_FAULTS=0", "ACCEPT")
    yield from (partial(breaks, cut) for cut in CUTS)
    if is_minimal:
        yield from _with_one_put_back()


def check_current_state() -> int:
    """Search the model of current state and print the table; return the exit code."""
    began, searches, wrong = time.monotonic(), 0, 0
    for line in lines():
        print(line, flush=True)
        searches, wrong = searches + 1, wrong + (not line.is_expected)
    print(f"{len(Rule)} rules, {searches} searches, {wrong} wrong, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


def check(faults: int, *, is_minimal: bool) -> int:
    """Search the model of the protocol and print the table; return the exit code."""
    began = time.monotonic()
    with ThreadPoolExecutor(_WORKERS) as pool:
        futures = [pool.submit(one) for one in _searches(faults, is_minimal=is_minimal)]
        found = []
        for future in futures:
            found.append(future.result())
            print(found[-1], flush=True)
    wrong = sum(not line.is_expected for line in found)
    print(f"{len(guards())} guards, {len(found)} searches, {wrong} wrong, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


def show(without: tuple[str, ...], checked: Checked, scenario: str) -> int:
    """Print the shortest counterexample without some guards; return the exit code."""
    found = shortest_counterexample(Cut(without, checked, 0 if scenario else 2, scenario))
    _print_story(found)
    return 0


def show_current_state(without: frozenset[Rule]) -> int:
    """Print the shortest counterexample without some rules of current state; return the exit code."""
    found = counterexample(without)
    print(f"     the log: {found.log}")
    _print_story(found)
    return 0


def _print_story(found: Search | Found) -> None:
    for number, step in enumerate(found.story, start=1):
        print(f"{number:3}  {step}")
    print(f"broken: {found.broken}" if found.broken else f"none in {found.states:,} states")


def _stop(number: int, _frame: FrameType | None) -> None:
    stop_searches()
    os._exit(128 + number)  # threads that wait for a search would keep the process


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [*guards(), *map(str, Rule)]
    parser.add_argument("--show", nargs="+", metavar="GUARD", choices=names, help="print a counterexample")
    parser.add_argument("--checked", default="PROGRESS", choices=[c.name for c in Checked], help="with --show: up to")
    parser.add_argument("--scenario", default="", choices=["RESET", "ACCEPT"], help="with --show: reloads and changes")
    parser.add_argument("--minimal", action="store_true", help="also put each guard of a set back (takes an hour)")
    parser.add_argument("--faults", type=int, default=2, help="faults in the full search (default: 2)")
    parser.add_argument("--current-state", action="store_true", help="check only the model of current state")
    options = parser.parse_args()
    if options.show and len({name in set(Rule) for name in options.show}) > 1:
        parser.error("--show: guards of the protocol and rules of current state are removed from different models")
    return options


def main() -> int:
    """Read the command line; return the exit code."""
    options = _options()
    if options.show and options.show[0] in set(Rule):
        return show_current_state(frozenset(map(Rule, options.show)))
    if options.current_state:
        return check_current_state()
    missing = [program for program in ("spin", "cc") if shutil.which(program) is None]
    if missing:
        print(f"error: {' and '.join(missing)} not found: apt-get install spin gcc", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        if options.show:
            return show(tuple(options.show), Checked[options.checked], options.scenario)
        return max(check_current_state(), check(options.faults, is_minimal=options.minimal))
    except SpinFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
