"""Planner and job of different versions: what was planned under other rules is planned anew, never loaded by them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from kafka_ingest.errors import DatabaseUnavailable
from kafka_ingest.settings import PROTOCOL_VERSION
from kafka_ingest.spark import submission
from kafka_ingest.spark.archive import job_archive
from sandbox.kafka import KafkaBroker
from tests.crash.changing_topics import ChangingTopic
from tests.crash.eventful_run import PLANNED, EventfulRun
from tests.integration.pipeline_under_test import PipelineUnderTest
from tests.services import TopicFactory

RUN = ("run", "events", "--runner", "in-process", "--run-id", "r1")


@pytest.fixture
def pipeline(raw_pipeline: PipelineUnderTest, kafka_broker: KafkaBroker, topic: TopicFactory) -> PipelineUnderTest:
    """Three records wait."""
    changing = ChangingTopic(kafka_broker.bootstrap, topic())
    changing.produce([b"a", b"b", b"c"])
    raw_pipeline.write(changing.name)
    return raw_pipeline


def states(pipeline: PipelineUnderTest) -> list[tuple[str, int]]:
    return [
        (s, v) for s, v in pipeline.query("SELECT state, protocol_version FROM kafka_ingest.batch ORDER BY ordinal")
    ]


def require_loaded_once(pipeline: PipelineUnderTest) -> None:
    assert pipeline.rows("payload") == [(b"a",), (b"b",), (b"c",)]
    assert pipeline.command("audit", "events")[:2] == (0, [])


@pytest.mark.parametrize("other", [PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1])
def test_a_batch_that_another_version_planned_is_planned_anew_by_its_run(
    pipeline: PipelineUnderTest, other: int
) -> None:
    """An older package that comes back must not load by its rules what a newer one has planned, and vice versa."""

    def cut_off() -> None:
        raise DatabaseUnavailable("the test cuts the first attempt off")

    with pytest.raises(DatabaseUnavailable):
        EventfulRun("events", {PLANNED: cut_off}).run("planned")
    pipeline.query("UPDATE kafka_ingest.batch SET protocol_version = %s", other)
    EventfulRun("events").run("planned")
    assert states(pipeline) == [("superseded", other), ("committed", PROTOCOL_VERSION)]
    require_loaded_once(pipeline)


def test_a_job_of_another_version_changes_nothing_and_says_so(
    pipeline: PipelineUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = archive_of_version(PROTOCOL_VERSION + 1, tmp_path / "other.zip")
    with monkeypatch.context() as patched:
        patched.setattr(submission, "job_archive", lambda: other)
        code, _, notes = pipeline.command("run", "events", "--runner", "spark", "--run-id", "r1")
    assert code == 78
    assert '"class": "VersionSkew"' in notes
    assert f'"expected": "protocol version {PROTOCOL_VERSION + 1}"' in notes
    assert pipeline.rows("payload") == []
    assert states(pipeline) == [("planned", PROTOCOL_VERSION)]
    assert pipeline.command(*RUN)[0] == 0
    require_loaded_once(pipeline)


def archive_of_version(version: int, path: Path) -> Path:
    """Return the job's zip as a package of another protocol version would make it."""
    line = f"PROTOCOL_VERSION = {PROTOCOL_VERSION}\n"
    with zipfile.ZipFile(job_archive()) as own, zipfile.ZipFile(path, "w") as other:
        for name in own.namelist():
            if name.endswith(".pyc"):  # it was compiled from this version's source
                continue
            content = own.read(name).decode()
            if name == "kafka_ingest/settings.py":
                assert content.count(line) == 1
                content = content.replace(line, f"PROTOCOL_VERSION = {version}\n")
            other.writestr(name, content)
    return path
