"""The trial of a reader without message objects needs a C compiler; a machine without one measures everything else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.paths import CHECKOUT
from tests.benchmarks import __main__ as command
from tests.benchmarks.comparisons import SCRIPTS
from tests.benchmarks.results import read_results, write_results

NAME = "consuming-buffers"


def test_without_a_compiler_the_trial_says_so_and_has_no_result(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", *SCRIPTS[NAME]],
        cwd=CHECKOUT,
        env={**os.environ, "PATH": str(tmp_path), "PYTHONPATH": f"plugins{os.pathsep}."},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == ""
    assert "no C compiler" in answer.stderr


def test_a_script_without_a_result_leaves_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(NAME, {"rounds": 7}, tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"plugins{os.pathsep}.")
    monkeypatch.chdir(CHECKOUT)
    command._run_script(NAME, tmp_path)
    assert read_results(NAME, tmp_path)["rounds"] == 7
    assert f"{NAME}: skipped" in capsys.readouterr().err
