"""What the sandbox makes of a connector's states, and which Connect it fetches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox import connect
from sandbox.connect import ConnectWorker
from sandbox.errors import SandboxError
from sandbox.kafka_jars import KAFKA_VERSION
from sandbox.maven import Artifact, checksums

TRACE = (
    "org.apache.kafka.connect.errors.ConnectException: An exception occurred\n"
    "\tat io.debezium.pipeline.ErrorHandler.setProducerThrowable(ErrorHandler.java:67)\n"
    "Caused by: org.postgresql.util.PSQLException: FATAL: database is gone\n"
    "\t... 5 more\n"
)


@pytest.fixture
def worker(tmp_path: Path) -> ConnectWorker:
    return ConnectWorker(tmp_path / "connect", "127.0.0.1:9092")


def status(connector: str, *tasks: str, trace: str = "") -> dict[str, Any]:
    return {"connector": {"state": connector}, "tasks": [{"state": state, "trace": trace} for state in tasks]}


@pytest.mark.parametrize(
    ("told", "running"),
    [
        (status("RUNNING", "RUNNING"), True),
        (status("RUNNING", "RUNNING", "UNASSIGNED"), False),
        (status("UNASSIGNED", "RUNNING"), False),
        (status("RUNNING"), False),  # its tasks are not made yet
    ],
)
def test_a_connector_runs_when_it_and_all_its_tasks_do(
    worker: ConnectWorker, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any], running: bool
) -> None:
    monkeypatch.setattr(ConnectWorker, "status", lambda self, name: told)
    assert worker.is_connector_running("orders") is running


def test_a_failed_task_is_reported_with_its_root_cause_first(
    worker: ConnectWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = status("RUNNING", "RUNNING", "FAILED", trace=TRACE)
    monkeypatch.setattr(ConnectWorker, "status", lambda self, name: told)
    with pytest.raises(SandboxError, match="the connector orders failed") as raised:
        worker.wait_running("orders")
    assert raised.value.found.splitlines()[0] == "org.postgresql.util.PSQLException: FATAL: database is gone"


def test_a_connector_that_does_not_begin_is_given_up_with_the_end_of_the_log(
    worker: ConnectWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConnectWorker, "status", lambda self, name: status("RUNNING"))
    worker.log.parent.mkdir()
    worker.log.write_text("still looking for tables\n", encoding="utf-8")
    with pytest.raises(SandboxError, match="did not begin") as raised:
        worker.wait_running("orders", timeout_seconds=0)
    assert "still looking for tables" in raised.value.found


def test_a_worker_that_was_never_started_has_no_address_and_is_stopped(worker: ConnectWorker) -> None:
    assert not worker.is_running()
    worker.stop()
    with pytest.raises(SandboxError, match="never started"):
        _ = worker.url


def test_connect_has_the_version_of_the_broker() -> None:
    listed = checksums(Path(connect.__file__).with_name("connect_jars.sha256"))
    assert f"connect-runtime-{KAFKA_VERSION}.jar" in listed
    assert f"kafka-clients-{KAFKA_VERSION}.jar" in listed


def test_checksums_are_read_by_file_name_without_the_comments(tmp_path: Path) -> None:
    listed = tmp_path / "jars.sha256"
    listed.write_text("# of Maven Central\nab12  one-1.0.jar\ncd34  two-2.0.tar.gz\n", encoding="utf-8")
    assert checksums(listed) == {"one-1.0.jar": "ab12", "two-2.0.tar.gz": "cd34"}


@pytest.mark.parametrize(
    ("artifact", "name"),
    [
        (Artifact("g", "one", "1.0"), "one-1.0.jar"),
        (Artifact("g", "one", "1.0", "plugin", "tar.gz"), "one-1.0-plugin.tar.gz"),
    ],
)
def test_a_fetched_file_has_name_version_and_classifier(artifact: Artifact, name: str) -> None:
    assert artifact.file_name == name
