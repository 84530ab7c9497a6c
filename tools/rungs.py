"""``make test``: runs the rungs of the tests beside each other, each in a pytest of its own with services of its own.

The tests mostly wait for brokers, JVMs and Airflow, so two rungs at a time keep two cores busy. What a pytest says
while its tests run is shown at once; what it says at the end (failures, warnings, skips) is shown together. The last
lines are each rung's time and the sums of all, in pytest's words.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import FrameType
from typing import Never

ROOT = Path(__file__).resolve().parent.parent
#: A sign of life for whoever stops silent jobs.
STATUS_SECONDS = 60.0
#: What an interrupted pytest has for stopping its services.
GRACE_SECONDS = 90.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: What became of a test, in the order of pytest's closing line.
WORDS = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warning", "error")
_CLOSING = re.compile(r"^=* ?(?P<counts>(?:\d+ \w+(?:, )?)+) in [0-9.]+s\b")
Show = Callable[[str], None]


class Interrupted(Exception):
    """A signal asked for the end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the pytest of a rung ended.

    Attributes:
        rung: Its name.
        code: Exit code; a signal is negative.
        seconds: From its start to its end.
        told: What it said after its last test.
    """

    rung: str
    code: int
    seconds: float
    told: tuple[str, ...]

    @property
    def counts(self) -> Counter[str]:
        """Tests by pytest's word for what became of them; a pytest without a closing line counts as an error."""
        found = next(filter(None, map(_CLOSING.match, reversed(self.told))), None)
        pairs = (part.split() for part in found["counts"].split(", ")) if found else [("1", "error")]
        return Counter({word.rstrip("s") if word in ("errors", "warnings") else word: int(n) for n, word in pairs})

    @property
    def time_line(self) -> str:
        """The line that tests/conftest.py ends with."""
        lines = (line for line in reversed(self.told) if re.match(rf"{self.rung} +\d+ tests ", line))
        ended = "" if self.code == 0 else f", pytest ended with {self.code}"
        return next(lines, f"{self.rung:14}       tests  {self.seconds:7.1f} s") + ended


class Pytests:
    """The running pytests.

    Args:
        command: Makes the command of a rung.
        show: Takes each line for the person who looks on.
    """

    def __init__(self, command: Callable[[str], Sequence[str]], show: Show) -> None:
        self._command = command
        self._show = show
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._lock = Lock()
        self._ending = False

    @property
    def rungs(self) -> list[str]:
        """Return the rungs that run now."""
        return list(self._running)

    def run(self, rung: str) -> Outcome:
        """Run a rung to its end, and show what its pytest says."""
        started = time.monotonic()
        with self._lock:
            if self._ending:
                return Outcome(rung, -signal.SIGINT, 0.0, ())
            process = self._running[rung] = _start(self._command(rung))
        told = self._show_progress(rung, process.stdout or ())
        code = process.wait()
        del self._running[rung]
        self._show("\n".join(f"{rung}: {line}" for line in told))
        return Outcome(rung, code, time.monotonic() - started, tuple(told))

    def end(self) -> None:
        """Interrupt them, as Ctrl-C does, and kill what has not stopped its services in time."""
        with self._lock:
            self._ending = True
        for number in SIGNALS:  # once is enough
            signal.signal(number, signal.SIG_IGN)
        deadline = time.monotonic() + GRACE_SECONDS
        processes = list(self._running.values())
        for process in processes:
            _signal(process, signal.SIGINT)
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)

    def _show_progress(self, rung: str, lines: Iterable[str]) -> list[str]:
        """Show lines until the tests have ended; return those after that."""
        told: list[str] = []
        for line in map(str.rstrip, lines):
            if told or (line.startswith("===") and " test session starts " not in line):
                told.append(line)
            elif line and not line.startswith("==="):
                self._show(line if line.startswith("tests/") else f"{rung}: {line}")
        return told


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    # In a group of its own: Ctrl-C of a terminal comes to this process alone, which hands it on once.
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    )


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def run_side_by_side(rungs: Sequence[str], command: Callable[[str], Sequence[str]], *, jobs: int, show: Show) -> int:
    """Run the rungs in this order, so many at a time, and show the sums.

    Returns:
        0 when all passed, 1 when one did not.

    Raises:
        Interrupted: By SIGINT or SIGTERM; all that was started has ended.
    """
    started = time.monotonic()
    pytests = Pytests(command, show)
    for number in SIGNALS:
        # Set, not inherited: a shell starts background commands with SIGINT ignored, and pytest would ignore it, too.
        signal.signal(number, _interrupt)
    with ThreadPoolExecutor(jobs) as lanes:
        runs = [lanes.submit(pytests.run, rung) for rung in rungs]
        try:
            _watch(runs, pytests, show, started)
        except Interrupted:
            pytests.end()
            raise
    outcomes = [run.result() for run in runs]
    _close(outcomes, time.monotonic() - started, show)
    return int(any(outcome.code for outcome in outcomes))


def _interrupt(number: int, frame: FrameType | None) -> Never:
    del frame
    raise Interrupted(number)


def _watch(runs: Sequence[Future[Outcome]], pytests: Pytests, show: Show, started: float) -> None:
    """Wait for all, and say now and then what runs."""
    waiting = set(runs)
    while waiting:
        ended, waiting = wait(waiting, timeout=STATUS_SECONDS, return_when="FIRST_COMPLETED")
        if not ended:
            done = len(runs) - len(waiting)
            running = ", ".join(pytests.rungs)
            show(f"-- {_minutes(time.monotonic() - started)}: {done} of {len(runs)} rungs done; running: {running}")


def _close(outcomes: Sequence[Outcome], seconds: float, show: Show) -> None:
    for outcome in outcomes:
        show(outcome.time_line)
    show(f" {total(outcomes)} in {seconds:.2f}s ({_minutes(seconds)}) ".center(80, "="))


def total(outcomes: Iterable[Outcome]) -> str:
    """Return the sums, as pytest's closing line has them."""
    counts = sum((outcome.counts for outcome in outcomes), Counter[str]())
    return ", ".join(_counted(counts[word], word) for word in WORDS if counts[word])


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" + ("s" if word in ("warning", "error") and count > 1 else "")


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def main(arguments: Sequence[str]) -> int:
    """Run the rungs of the command line; ``128 + signal`` when a signal ended it."""
    parser = argparse.ArgumentParser(prog="python -m tools.rungs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="how many rungs at a time")
    parser.add_argument("rungs", nargs="+", metavar="RUNG", help="a folder of tests/; after -- arguments of pytest")
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:split])

    def command(rung: str) -> list[str]:
        return [sys.executable, "-m", "pytest", "--no-header", *arguments[split + 1 :], f"tests/{rung}"]

    try:
        return run_side_by_side(options.rungs, command, jobs=options.jobs, show=_show)
    except Interrupted as signalled:
        _show(f"ended by {signalled}")
        return 128 + signalled.number


def _show(line: str) -> None:
    sys.stdout.write(f"{line}\n")  # one call, so that the lines of two threads stay apart
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
