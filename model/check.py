"""Checks the model of the protocol: it holds in every state, and every guard in it is needed.

    python model/check.py                      # everything; exit code 1 if anything is not as it must be
    python model/check.py --show VIEW_RECHECK  # the shortest counterexample without these guards, step by step
    python model/check.py --minimal            # also: with any one guard of a set put back, nothing breaks

Needs spin and a C compiler, and nothing beyond Python's standard library.
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


def check(faults: int, *, is_minimal: bool) -> int:
    """Search everything and print the table; return the exit code."""
    began = time.monotonic()
    with ThreadPoolExecutor(_WORKERS) as pool:
        futures = [pool.submit(one) for one in _searches(faults, is_minimal=is_minimal)]
        lines = []
        for future in futures:
            lines.append(future.result())
            print(lines[-1], flush=True)
    wrong = sum(not line.is_expected for line in lines)
    print(f"{len(guards())} guards, {len(lines)} searches, {wrong} wrong, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


def show(without: tuple[str, ...], checked: Checked, scenario: str) -> int:
    """Print the shortest counterexample without some guards; return the exit code."""
    found = shortest_counterexample(Cut(without, checked, 0 if scenario else 2, scenario))
    for number, step in enumerate(found.story, start=1):
        print(f"{number:3}  {step}")
    print(f"broken: {found.broken}" if found.broken else f"none in {found.states:,} states")
    return 0


def _stop(number: int, _frame: FrameType | None) -> None:
    stop_searches()
    os._exit(128 + number)  # threads that wait for a search would keep the process


def main() -> int:
    """Read the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--show", nargs="+", metavar="GUARD", choices=guards(), help="print a counterexample")
    parser.add_argument("--checked", default="PROGRESS", choices=[c.name for c in Checked], help="with --show: up to")
    parser.add_argument("--scenario", default="", choices=["RESET", "ACCEPT"], help="with --show: reloads and changes")
    parser.add_argument("--minimal", action="store_true", help="also put each guard of a set back (takes an hour)")
    parser.add_argument("--faults", type=int, default=2, help="faults in the full search (default: 2)")
    options = parser.parse_args()
    missing = [program for program in ("spin", "cc") if shutil.which(program) is None]
    if missing:
        print(f"error: {' and '.join(missing)} not found: apt-get install spin gcc", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        if options.show:
            return show(tuple(options.show), Checked[options.checked], options.scenario)
        return check(options.faults, is_minimal=options.minimal)
    except SpinFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
