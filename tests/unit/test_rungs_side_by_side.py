"""``make test`` runs several pytests and ends as one would: the sums last, red when one is red, none left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.rungs import ROOT, Outcome, total

#: A runner in a process of its own, whose pytests are programs of the test.
RUNNER = r"""
import sys
from tools.rungs import Interrupted, run_side_by_side
def show(line):
    sys.stdout.write(line + "\n")  # one call: two threads show lines
    sys.stdout.flush()
def command(rung):
    return [sys.executable, "-c", sys.argv[1 + int(rung[-1])]]
try:
    sys.exit(run_side_by_side(["rung0", "rung1", "rung2"][: len(sys.argv) - 1], command, jobs=2, show=show))
except Interrupted as signalled:
    sys.exit(128 + signalled.number)
"""
GREEN = "print('tests/unit/test_a.py ..'); print('=== 2 passed, 1 skipped in 0.10s ===')"
RED = """
print('tests/unit/test_b.py F')
print('=== FAILURES ===')
print('assert 1 == 2')
print('=== 1 failed, 3 passed in 61.00s (0:01:01) ===')
raise SystemExit(1)
"""
# A pytest that starts services, and stops them when it is interrupted.
WITH_SERVICES = """
import pathlib, signal
try:
    print('tests/unit/test_c.py', flush=True)
    signal.pause()
except KeyboardInterrupt:
    pathlib.Path({stopped!r}).touch()
    raise SystemExit(2)
"""


def runner(*pytests: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUNNER, *pytests]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(*told: str, code: int = 0) -> Outcome:
    return Outcome("unit", code, 1.0, told)


def run(*pytests: str) -> tuple[int, list[str]]:
    process = runner(*pytests)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output.splitlines()


@pytest.mark.parametrize(
    ("closings", "sums"),
    [
        (["2 passed in 0.10s", "3 passed, 1 skipped in 2.00s"], "5 passed, 1 skipped"),
        (
            ["1 failed, 1 error in 0.10s", "1 warning, 2 errors in 1.00s"],
            "1 failed, 1 warning, 3 errors",
        ),
        (["== 7 passed, 2 deselected in 812.34s (0:13:32) =="], "7 passed, 2 deselected"),
        (["2 passed in 0.10s", "Killed"], "2 passed, 1 error"),
    ],
)
def test_the_closing_line_has_the_sums_in_pytests_words(closings: Sequence[str], sums: str) -> None:
    assert total([ended(closing) for closing in closings]) == sums


def test_a_rungs_line_is_that_of_its_pytest_and_says_how_a_killed_one_ended() -> None:
    assert ended("=== rungs ===", "unit  3 tests  0.5 s of 60 s", "== 3 passed in 1.00s ==").time_line == (
        "unit  3 tests  0.5 s of 60 s"
    )
    assert ended(code=-9).time_line.endswith("1.0 s, pytest ended with -9")


def test_one_red_rung_makes_the_whole_red_and_stops_no_other() -> None:
    code, lines = run(GREEN, RED, GREEN)
    assert code == 1
    assert lines.count("tests/unit/test_a.py ..") == 2
    assert "rung1: assert 1 == 2" in lines
    assert lines[-1].strip("= ").startswith("1 failed, 7 passed, 2 skipped in ")


def test_green_rungs_make_the_whole_green() -> None:
    code, lines = run(GREEN, GREEN)
    assert code == 0
    assert lines[-1].strip("= ").startswith("4 passed, 2 skipped in ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_every_pytest_stop_its_services(tmp_path: Path, number: signal.Signals) -> None:
    stopped = [tmp_path / "first", tmp_path / "second", tmp_path / "never started"]
    process = runner(*(WITH_SERVICES.format(stopped=str(path)) for path in stopped))
    assert process.stdout is not None
    assert [process.stdout.readline().strip() for _ in range(2)] == ["tests/unit/test_c.py"] * 2
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    process.stdout.close()
    assert [path.exists() for path in stopped] == [True, True, False]


@pytest.mark.parametrize(("target", "left_out"), [("test", {"crash"}), ("test-change", set()), ("test-all", set())])
def test_no_folder_of_tests_is_forgotten_by_make(target: str, left_out: set[str]) -> None:
    command = ["make", "--dry-run", "--no-print-directory", target]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    [run] = [line for line in shown if "tools.rungs" in line]
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    assert folders - set(run.split(" -- ")[0].split()) == left_out
