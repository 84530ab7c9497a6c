"""The process that resolves dead letters: what it gets, how it answers, and what stays out of sight."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_ingest.errors import DatabaseUnavailable, RetryLater
from kafka_ingest.protocol.dead_letters import (
    ChosenGroup,
    DeadLetterAction,
    DeadLetterChoice,
    DeadLetterOutcome,
    DeadLetterPlace,
    DeadLetterReport,
    DeadLetterRequest,
    RecordedDeadLetters,
    StayingGroup,
)
from kafka_ingest.spark import replay
from kafka_ingest.spark.archive import entry_script
from kafka_ingest.spark.replay import ReplayOrder, run_replay, write_report
from kafka_ingest.spark.submission import OUTCOME_VARIABLE, hand_over, take_environment
from tests.builders import NOON, pipeline_settings

SECRET = "pg-s3cret"
CHOICE = DeadLetterChoice(("malformed",), (DeadLetterPlace("orders", 0, 1, 9),), None, 0, 5)
REQUEST = DeadLetterRequest("r1", "orders", DeadLetterAction.REPLAY, CHOICE, "ada", "mended")
ORDER = ReplayOrder(
    {"host": "127.0.0.1", "port": "1", "user": "etl", "password": SECRET}, pipeline_settings(), REQUEST, apply=True
)
OUTCOME = DeadLetterOutcome(1, 2, 3, 4, (StayingGroup("malformed", 4, "orders", 0, 7, "no JSON"),))
REPORT = DeadLetterReport(
    (ChosenGroup("orders", 0, 0, None, "malformed", 10, 1, 9),),
    OUTCOME,
    RecordedDeadLetters("r1", REQUEST.arguments, "ada", "mended", NOON, OUTCOME),
)


def test_the_process_gets_what_was_ordered_once(tmp_path: Path) -> None:
    variables = hand_over(ORDER, tmp_path / "outcome.json")
    assert take_environment(variables, ReplayOrder) == (ORDER, tmp_path / "outcome.json")
    assert list(tmp_path.iterdir()) == []
    assert SECRET not in repr(ORDER)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    @contextmanager
    def job_folder() -> Iterator[Path]:
        yield tmp_path

    monkeypatch.setattr(replay, "job_folder", job_folder)
    return tmp_path


def instead(monkeypatch: pytest.MonkeyPatch, program: str, folder: Path) -> None:
    """Let the process run another program."""
    script = folder / "program.py"
    script.write_text(program)
    monkeypatch.setattr(replay, "entry_script", lambda _name: script)


def test_a_report_comes_back_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = folder / "answer.json"
    write_report(answer, REPORT)
    program = f"import os, shutil; print('line one'); shutil.copy({str(answer)!r}, os.environ[{OUTCOME_VARIABLE!r}])"
    instead(monkeypatch, program, folder)
    told: list[str] = []
    assert run_replay(ORDER, told.append) == REPORT
    assert told == ["line one"]


def test_a_process_that_dies_leaves_it_to_the_same_request(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instead(monkeypatch, "import os; os.kill(os.getpid(), 9)", folder)
    with pytest.raises(RetryLater, match="exit code -9") as lost:
        run_replay(ORDER, lambda _line: None)
    assert "ask again with the request id r1" in lost.value.next_command


def test_the_error_of_the_process_comes_back_and_no_secret_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[str], Mapping[str, str]]] = []
    popen = subprocess.Popen

    def watched(command: list[str], env: Mapping[str, str], **more: Any) -> object:
        seen.append((command, env))
        return popen(command, env=env, **more)

    monkeypatch.setenv("AIRFLOW_CONN_POSTGRES_DEFAULT", f"postgresql://etl:{SECRET}@127.0.0.1:1/shop")
    monkeypatch.setattr(subprocess, "Popen", watched)
    told: list[str] = []
    with pytest.raises(DatabaseUnavailable):
        run_replay(ORDER, told.append)
    [(command, environment)] = seen
    assert command == [sys.executable, str(entry_script("replay_dead_letters"))]
    assert SECRET not in " ".join([*command, *environment.values(), *told])
