"""Fixtures of the integration tests."""

from __future__ import annotations

import pytest

from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest
from tests.services import ProducerFactory, TopicFactory


@pytest.fixture
def pipeline(raw_pipeline: PipelineUnderTest, topic: TopicFactory, producer: ProducerFactory) -> FedPipeline:
    """A pipeline on the shared broker, in a database of its own; its topic and file are not made yet."""
    raw = raw_pipeline
    return FedPipeline(raw.name, raw.folder, raw.database, raw.capture, make_topic=topic, make_producer=producer)
