"""Fixtures of the integration tests."""

from __future__ import annotations

import pytest

from tests.integration.pipeline_under_test import PipelineUnderTest


@pytest.fixture
def pipeline(raw_pipeline: PipelineUnderTest) -> PipelineUnderTest:
    """A pipeline on the shared broker, in a database of its own; its file is not written yet."""
    return raw_pipeline
