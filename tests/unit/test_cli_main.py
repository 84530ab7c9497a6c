"""The command line's own behaviour: help, usage, exit codes of faults, quiet ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_ingest import __main__ as main
from kafka_ingest.errors import (
    AccountingMismatch,
    BrokerUnavailable,
    Busy,
    ConfigError,
    Fenced,
    IngestError,
    StopAndCall,
    exit_code,
)

CHECKOUT = Path(__file__).resolve().parents[2]
BROKEN = "pipeline: broken\nkafka: {topics: [a]}\n"


@pytest.fixture(autouse=True)
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for pipeline files, and no connections from outside."""
    for variable in [name for name in os.environ if name.startswith("AIRFLOW_CONN_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("KAFKA_INGEST_PIPELINES", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BrokerUnavailable("x"), 75),
        (Busy("x"), 75),
        (Fenced("x"), 75),
        (ConfigError("x"), 78),
        (AccountingMismatch("x"), 78),
        (StopAndCall("x"), 78),
        (IngestError("x"), 1),
    ],
)
def test_every_family_has_its_exit_code(error: IngestError, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    "command",
    [
        "draft",
        "check-config",
        "migrate",
        "preflight",
        "size",
        "plan",
        "run",
        "status",
        "lag",
        "batches",
        "dead-letters",
        "audit",
        "change",
        "roll-back",
        "housekeeping",
        "prepare-spark",
    ],
)
def test_every_command_has_help_of_its_own(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main([command, "--help"])
    assert end.value.code == 0
    assert f"python -m kafka_ingest {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["unheard-of"],
        ["run"],
        ["plan", "orders"],
        ["dead-letters", "orders"],
        ["dead-letters", "list", "orders", "--batch", "7"],
        ["dead-letters", "show", "orders", "orders", "0"],
        ["change", "orders"],
        ["change", "orders", "reset"],
        ["change", "orders", "reset", "--to", "earliest", "--by", "3"],
        ["change", "orders", "reset", "--by", "many"],
        ["change", "orders", "skip-lag"],
        ["change", "orders", "rename"],
        ["housekeeping", "--older-than-days", "-1"],
        ["draft"],
        ["draft", "orders", "--records", "0"],
        ["size", "--bytes-per-day", "lots"],
        ["size", "--bytes-per-day", "0"],
        ["size", "--bytes-per-day", "1TB", "--records-per-day", "7"],
        ["size", "--peak-factor", "0.5"],
        ["size", "--format", "xml"],
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(arguments)
    assert end.value.code == 2
    assert "usage: " in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["change", "orders", "reset", "--help"], ["run"]])
def test_help_and_wrong_usage_load_no_client_library(arguments: list[str]) -> None:
    program = (
        "import sys; from kafka_ingest.__main__ import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(*sys.modules.keys() & {'psycopg2', 'confluent_kafka', 'pydantic', 'yaml', 'airflow'}, 'loaded')"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "plugins")}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "loaded"


def test_a_broken_pipeline_file_is_reported_beside_the_sound_ones(
    pipelines: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = pipelines / "broken.yaml"
    broken.write_text(BROKEN)
    assert main.main(["check-config", "--json"]) == 78
    rows = {row["file"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows.pop(str(broken))["result"] == "broken"
    assert {row["result"] for row in rows.values()} == {"good"}
    assert main.main(["check-config", str(broken)]) == 78
    shown = capsys.readouterr()
    assert "broken" in shown.out
    assert f"{broken}:1: " in shown.err


def test_a_file_that_is_checked_alone_can_clash_with_a_deployed_one(
    pipelines: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = CHECKOUT / "dags" / "pipelines" / "orders.yaml"
    copy = pipelines / "copy.yaml"
    copy.write_bytes(example.read_bytes())
    assert main.main(["check-config", str(copy)]) == 78
    assert f"found orders, as in {example}:" in capsys.readouterr().err
    copy.unlink()
    assert main.main(["check-config", str(example)]) == 0


def test_an_unknown_pipeline_is_a_four_part_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["batches", "nowhere"]) == 78
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("ConfigError: there is no pipeline nowhere")
    assert "next: python -m kafka_ingest check-config" in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize(
    ("arguments", "faults"),
    [
        (["run", "orders", "--mode", "reload"], ["--from-time", "--reason"]),
        (["run", "orders", "--from-time", "2026-01-01T00:00:00Z"], ["--from-time"]),
        (["run", "orders", "--mode", "reload", "--offsets", "orders 0", "--reason", "r"], ["--offsets"]),
        (
            ["run", "orders", "--mode", "reload", "--to-time", "x", "--limit", "1"],
            ["--to-time", "--from-time", "--reason", "--limit"],
        ),
        (["plan", "orders", "--dry-run", "--offsets", "orders 0 0", "--limit", "5"], ["--limit"]),
    ],
)
def test_what_a_run_cannot_do_is_told_at_once_before_anything_is_asked(
    arguments: list[str], faults: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main([*arguments, "--json"]) == 78
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["class"] == "ConfigError"
    assert [line.partition(":")[0] for line in error["found"].splitlines()] == faults


def test_a_missing_connection_names_the_variable_and_airflows_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # As where Airflow is not installed: asking it takes seconds and a database.
    monkeypatch.setattr("kafka_ingest.cli.command.find_spec", lambda _name: None)
    assert main.main(["migrate", "--connection", "nowhere_at_all"]) == 78
    message = capsys.readouterr().err
    assert "AIRFLOW_CONN_NOWHERE_AT_ALL" in message
    assert "airflow connections add nowhere_at_all" in message
    assert "Traceback" not in message


def test_ctrl_c_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("kafka_ingest.pipeline_files.files.pipeline_paths", interrupted)
    assert main.main(["check-config"]) == 130
    assert capsys.readouterr().err == ""


def test_a_reader_that_has_enough_is_no_error() -> None:
    command = f"{sys.executable} -m kafka_ingest check-config --json"
    # The reader closes the pipe before anything is written to it.
    piped = f"( {command}; echo $? >&2 ) | true"
    environment = {**os.environ, "PYTHONPATH": f"{CHECKOUT / 'plugins'}:{CHECKOUT}"}
    done = subprocess.run(["bash", "-c", piped], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == "0\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["batches", "orders"],
        *(["dead-letters", action, "orders"] for action in ("list", "export", "replay", "discard")),
        ["dead-letters", "show", "orders", "orders", "0", "1"],
        ["audit", "orders"],
        ["lag", "orders"],
        ["run", "orders", "--runner", "in-process"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_command_names_its_pipeline_when_the_database_is_away(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(kafka))
    monkeypatch.setenv("AIRFLOW_CONN_POSTGRES_DEFAULT", "postgresql://nobody@127.0.0.1:1/nothing")
    assert main.main(arguments) == 75
    assert "(pipeline orders)" in capsys.readouterr().err
