"""Fixtures of the crash tests: one topic for all, which nobody changes, and a database for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.kafka import KafkaBroker
from tests.crash.mixed_topic import PARTITIONS, MixedTopic, produce_mix, read_independently
from tests.crash.pipeline_at_risk import SECTIONS, PipelineAtRisk
from tests.integration.pipeline_under_test import PipelineUnderTest, set_connections
from tests.services import FreshTopics, Producers


@pytest.fixture(scope="session")
def mixed_topic(kafka_broker: KafkaBroker) -> Iterator[MixedTopic]:
    """A topic with plain, malformed, null, committed and aborted values, and what an independent reader found in it."""
    topics, producers = FreshTopics(kafka_broker.bootstrap), Producers(kafka_broker.bootstrap)
    name = topics.create(PARTITIONS)
    produce_mix(producers.create, name)
    yield read_independently(kafka_broker.bootstrap, name)
    topics.delete_all()


@pytest.fixture
def pipeline(
    tmp_path: Path,
    database: dict[str, Any],
    kafka_broker: KafkaBroker,
    mixed_topic: MixedTopic,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[PipelineAtRisk]:
    """A pipeline that loads the mixed topic, run with real connections; nothing is loaded yet."""
    set_connections(monkeypatch, bootstrap=kafka_broker.bootstrap, database=database)
    monkeypatch.setenv("KAFKA_INGEST_PIPELINES", str(tmp_path))
    files = PipelineUnderTest("events", tmp_path, database, capfd)
    files.write(mixed_topic.name, **SECTIONS)
    at_risk = PipelineAtRisk(files, mixed_topic)
    try:
        yield at_risk
    finally:
        at_risk.end_all()


@pytest.fixture
def raw_pipeline(
    tmp_path: Path,
    database: dict[str, Any],
    kafka_broker: KafkaBroker,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> PipelineUnderTest:
    """A pipeline on the shared broker for topics that a test makes and changes; its file is not written yet."""
    set_connections(monkeypatch, bootstrap=kafka_broker.bootstrap, database=database)
    monkeypatch.setenv("KAFKA_INGEST_PIPELINES", str(tmp_path))
    return PipelineUnderTest("events", tmp_path, database, capfd)
