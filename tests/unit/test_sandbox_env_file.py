"""The env file brings every text unchanged into a shell, and only its owner can read it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sandbox.env_file import read_env_file, write_env_file

AWKWARD = "p\"a\\s;s@w/o%r$d x'\n`id` é"


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    path = tmp_path / "env"
    write_env_file(path, {"POSTGRES_DSN": AWKWARD, "PLAIN": "1"}, first_on_path=tmp_path / "bin folder")
    return path


def test_a_shell_gets_every_text_unchanged(env_file: Path) -> None:
    script = '. "$1"; printf "%s|%s|%s" "$POSTGRES_DSN" "$PLAIN" "$PATH"'
    shell = subprocess.run(["sh", "-c", script, "sh", str(env_file)], capture_output=True, text=True, check=True)
    secret, plain, path = shell.stdout.split("|")
    assert (secret, plain) == (AWKWARD, "1")
    assert path.startswith(f"{env_file.parent / 'bin folder'}:")


def test_only_its_owner_can_read_it(env_file: Path) -> None:
    assert env_file.stat().st_mode & 0o777 == 0o600


def test_a_script_reads_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "env"
    write_env_file(path, {"A": "p@ss w'ord", "B": "{}"}, first_on_path=tmp_path)
    assert read_env_file(path) == {"A": "p@ss w'ord", "B": "{}"}
