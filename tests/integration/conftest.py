"""Fixtures of the integration tests."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from sandbox.registry import client_settings
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest
from tests.secured_broker import SecuredBroker, secured_broker
from tests.services import ProducerFactory, TopicFactory, services_of_one_test


@pytest.fixture
def pipeline(raw_pipeline: PipelineUnderTest, topic: TopicFactory, producer: ProducerFactory) -> FedPipeline:
    """A pipeline on the shared broker, in a database of its own; its topic and file are not made yet."""
    raw = raw_pipeline
    return FedPipeline(raw.name, raw.folder, raw.database, raw.capture, make_topic=topic, make_producer=producer)


@pytest.fixture(scope="session")
def secured() -> Iterator[SecuredBroker]:
    """A running broker with logins, certificates, tokens and rights, with its issuer, for all tests that ask for it."""
    with secured_broker(services_of_one_test().folder) as broker:
        yield broker


@pytest.fixture
def registry(registry_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SchemaRegistryClient]:
    """A client of the registry, which the pipeline's connection leads to."""
    connection = {"conn_type": "http", "host": registry_url}
    monkeypatch.setenv("AIRFLOW_CONN_SCHEMA_REGISTRY_DEFAULT", json.dumps(connection))
    with SchemaRegistryClient(client_settings(registry_url)) as client:
        yield client
