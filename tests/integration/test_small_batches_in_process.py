"""Batches below ``spark.in_process_below_offsets``: the job's own code, in the process of the task."""

from __future__ import annotations

import logging
import subprocess
import sys
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest

from kafka_ingest.cli.command import world_of
from kafka_ingest.errors import TooManyDeadLetters
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.protocol.batch import Batch, RecordCounts
from kafka_ingest.spark.in_process import load_in_process
from kafka_ingest.spark.submission import loaded_batch, read_outcome, read_phases
from tests.integration.pipeline_under_test import FedPipeline

COLUMNS = [{"name": "n", "type": "integer"}]


@pytest.fixture(params=["no other", "another package"])
def name_taken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType | None:
    """As in a worker: the job's code was not imported, and a package of its name may be there."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "spark_jobs"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not (Path(entry or ".") / "spark_jobs").is_dir()])
    other = ModuleType("spark_jobs") if request.param == "another package" else None
    if other:
        monkeypatch.setitem(sys.modules, "spark_jobs", other)
    return other


def planned(pipeline: FedPipeline) -> Batch:
    return pipeline.plan_only("r1")


def test_a_planned_batch_is_loaded_whatever_else_has_the_name_of_the_jobs_package(
    pipeline: FedPipeline, tmp_path: Path, name_taken: ModuleType | None
) -> None:
    pipeline.open(2)
    pipeline.send("a", "b")
    pipeline.send("c", partition=1)
    batch, world, outcome = planned(pipeline), world_of(find_pipeline(pipeline.name)), tmp_path / "outcome.json"
    ended = load_in_process(batch, world.job_environment(), outcome)
    assert sys.modules.get("spark_jobs") is name_taken
    assert loaded_batch(batch, world.ledger(), outcome, ended).counts == RecordCounts(rows=3)
    assert read_phases(outcome) is not None
    assert pipeline.rows("kafka_partition, payload") == [(0, b"a"), (0, b"b"), (1, b"c")]


def test_a_fault_that_the_job_knows_is_told_in_its_class_and_nothing_is_written(
    pipeline: FedPipeline, tmp_path: Path
) -> None:
    pipeline.open(value={"format": "json", "columns": COLUMNS}, dead_letters={"max_count": 0})
    pipeline.send("no JSON")
    batch, world, outcome = planned(pipeline), world_of(find_pipeline(pipeline.name)), tmp_path / "outcome.json"
    load_in_process(batch, world.job_environment(), outcome)
    with pytest.raises(TooManyDeadLetters):
        read_outcome(outcome)
    assert pipeline.rows("n") == pipeline.dead_letters("reason") == []


def test_an_error_that_nobody_knows_is_logged_without_secrets_and_the_ledger_decides(
    pipeline: FedPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.open()
    pipeline.send("a")
    batch, world, outcome = planned(pipeline), world_of(find_pipeline(pipeline.name)), tmp_path / "outcome.json"
    environment = world.job_environment()

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError(f"password={environment.postgres['password']}")

    monkeypatch.setattr(PostgresLedger, "claim", broken)
    with caplog.at_level(logging.CRITICAL):
        ended = load_in_process(batch, environment, outcome)
    assert ended == "ZeroDivisionError; the log above has the trace"
    assert "in broken" in caplog.text
    assert environment.postgres["password"] not in caplog.text
    assert not outcome.exists()


def test_a_package_that_is_missing_is_named_and_not_tried_again(
    pipeline: FedPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.open()
    pipeline.send("a")
    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, "pyarrow", None)
        code, _, notes = pipeline.command("run", pipeline.name, "--runner", "in-process", "--run-id", "r1")
    assert (code, "Traceback" in notes) == (78, False), notes
    assert '"what": "this Python cannot load in process"' in notes
    assert "import of pyarrow halted" in notes
    assert pipeline.load("--run-id", "r1")["counts"]["rows"] == 1


def test_the_log_of_a_load_is_shown_to_a_command_without_secrets(
    pipeline: FedPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.open()
    pipeline.send("a")
    batch, environment = planned(pipeline), world_of(find_pipeline(pipeline.name)).job_environment()
    package = logging.getLogger("kafka_ingest")
    before = package.level, list(package.handlers)
    claim = PostgresLedger.claim

    def telling(ledger: PostgresLedger, batch_id: str, heartbeat_timeout_seconds: int) -> Batch:
        logging.getLogger("kafka_ingest.told").info("password=%s", environment.postgres["password"])
        return claim(ledger, batch_id, heartbeat_timeout_seconds)

    monkeypatch.setattr(PostgresLedger, "claim", telling)
    shown = StringIO()
    load_in_process(batch, environment, tmp_path / "outcome.json", log_to=shown)
    lines = [line.partition(" ")[2] for line in shown.getvalue().splitlines()]
    assert lines[:2] == [f"INFO loading batch {batch.batch_id} of pipeline events", "INFO password=***"]
    assert (package.level, package.handlers) == before


@pytest.mark.parametrize(("records", "starts_spark"), [(2, False), (3, True)])
def test_the_command_line_goes_the_same_way(
    pipeline: FedPipeline, monkeypatch: pytest.MonkeyPatch, records: int, *, starts_spark: bool
) -> None:
    pipeline.open(spark={"in_process_below_offsets": 3})
    pipeline.send(*map(str, range(records)))
    started: list[list[str]] = []
    run = subprocess.run

    def watched(command: list[str], **options: object) -> object:
        started.append(command)
        return run(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr("kafka_ingest.cli.run.subprocess.run", watched)
    code, _, notes = pipeline.command("run", pipeline.name)
    assert code == 0, notes
    assert ["--master" in command for command in started] == [True] * starts_spark
    assert " INFO session " in notes
    assert len(pipeline.rows("payload")) == records
