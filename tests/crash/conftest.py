"""Fixtures of the crash tests: two topics for all, which nobody changes, and a database for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.kafka import KafkaBroker
from tests.crash.mixed_topic import PARTITIONS, MixedTopic, produce_mix, read_independently
from tests.crash.pipeline_at_risk import SECTIONS, PipelineAtRisk
from tests.crash.state_at_risk import StateAtRisk, state_at_risk
from tests.crash.state_topic import PARTITIONS as STATE_PARTITIONS
from tests.crash.state_topic import StateTopic, produce_changes, read_changes
from tests.integration.pipeline_under_test import PipelineUnderTest
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
def pipeline(raw_pipeline: PipelineUnderTest, mixed_topic: MixedTopic) -> Iterator[PipelineAtRisk]:
    """A pipeline that loads the mixed topic, run with real connections; nothing is loaded yet."""
    raw_pipeline.write(mixed_topic.name, **SECTIONS)
    at_risk = PipelineAtRisk(raw_pipeline, mixed_topic)
    try:
        yield at_risk
    finally:
        at_risk.end_all()


@pytest.fixture(scope="session")
def state_topic(kafka_broker: KafkaBroker) -> Iterator[StateTopic]:
    """A topic of changes of a few keys, and what a plain consumer found in it."""
    topics, producers = FreshTopics(kafka_broker.bootstrap), Producers(kafka_broker.bootstrap)
    name = topics.create(STATE_PARTITIONS)
    produce_changes(kafka_broker.bootstrap, producers.create, name)
    yield read_changes(kafka_broker.bootstrap, name)
    topics.delete_all()


@pytest.fixture
def state(raw_pipeline: PipelineUnderTest, state_topic: StateTopic) -> Iterator[StateAtRisk]:
    """A pipeline that keeps the newest record of each key of that topic; nothing is loaded yet."""
    at_risk = state_at_risk(raw_pipeline, state_topic)
    try:
        yield at_risk
    finally:
        at_risk.end_all()
