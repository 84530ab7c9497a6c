"""Runs benchmarks and writes their results as JSON; ``page.py`` makes the documentation of them.

python -m tests.benchmarks quick           ours and the limits, 1 M records, once: for daily use
python -m tests.benchmarks full            everything that docs/benchmarks.md shows; hours
python -m tests.benchmarks peers-1m …      single comparisons by name
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.comparisons import COMPARISONS, FULL, QUICK, SCRIPTS
from tests.benchmarks.machine import load_average, machine
from tests.benchmarks.results import RESULTS, write_results
from tests.benchmarks.rounds import compare
from tests.benchmarks.world import BenchWorld


def main() -> None:
    """Runs the comparisons that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=str(__doc__).splitlines()[0])
    known = [*COMPARISONS, *SCRIPTS]
    parser.add_argument("names", nargs="+", choices=["quick", "full", *known], metavar="name", help=", ".join(known))
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON files (%(default)s)")
    parser.add_argument("--rounds", type=int, help="rounds of each comparison, instead of its own number")
    options = parser.parse_args()
    wanted = _wanted(options.names)
    world = BenchWorld()
    world.start()
    try:
        for name in wanted:
            if name in COMPARISONS:
                _run(world, name, options.results, options.rounds)
    finally:
        world.stop()
    for name in wanted:
        if name in SCRIPTS:
            _run_script(name, options.results)


def _wanted(names: list[str]) -> list[str]:
    groups = {"quick": QUICK, "full": FULL}
    return [found for name in names for found in groups.get(name, (name,))]


def _run(world: BenchWorld, name: str, folder: Path, rounds: int | None) -> None:
    before = load_average()
    runs = compare(world, COMPARISONS[name](rounds))
    found = {
        "machine": machine(world),
        "load_average_before": before,
        "load_average_after": load_average(),
        "runs": runs,
    }
    write_results(name, found, folder)


def _run_script(name: str, folder: Path) -> None:
    """Runs a script with servers of its own; its last line is its result. One without a tool prints no result."""
    before = load_average()
    said = subprocess.run([sys.executable, "-m", *SCRIPTS[name]], stdout=subprocess.PIPE, check=True).stdout
    if not said:
        print(f"{name}: skipped, older results stay", file=sys.stderr)
        return
    found = json.loads(said.splitlines()[-1])
    write_results(name, {"load_average_before": before, **found}, folder)


if __name__ == "__main__":
    main()
