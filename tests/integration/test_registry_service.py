"""The schema registry of sandbox and tests: what this project asks of Confluent's API, and what it keeps."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from sandbox.registry import client_settings
from tests.services import TestServices

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
WITH_DEFAULT = {"name": "zip", "type": "string", "default": ""}
WITHOUT_DEFAULT = {"name": "zip", "type": "string"}


@pytest.fixture
def client(registry_url: str) -> Iterator[Any]:
    with SchemaRegistryClient(client_settings(registry_url)) as client:
        yield client


@pytest.fixture
def subject() -> str:
    return f"test-{uuid.uuid4().hex}"


def avro(document: object, *references: Any) -> Any:
    return Schema(json.dumps(document), "AVRO", list(references))


def address(subject: str, *more: object) -> Any:
    """Return a schema that no other subject has: one schema has one id, whatever its subjects."""
    fields = [*ADDRESS["fields"], *more]
    return avro({**ADDRESS, "namespace": subject.replace("-", "_"), "fields": fields})


def test_a_schema_is_found_by_its_id_with_its_references(client: Any, subject: str) -> None:
    client.register_schema(f"{subject}-address", address(subject))
    name = f"{subject.replace('-', '_')}.Address"
    order = {"type": "record", "name": "Order", "fields": [{"name": "to", "type": name}]}
    reference = SchemaReference(name, f"{subject}-address", 1)
    schema_id = client.register_schema(subject, avro(order, reference))
    found = client.get_schema(schema_id)
    assert json.loads(found.schema_str) == order
    assert [(one.name, one.subject, one.version) for one in found.references] == [(name, f"{subject}-address", 1)]


def test_a_registered_subject_is_listed_and_its_id_names_it(client: Any, subject: str) -> None:
    schema_id = client.register_schema(subject, address(subject))
    assert subject in client.get_subjects()
    assert client.get_subjects_by_schema_id(schema_id) == [subject]
    assert [(found.subject, found.version) for found in client.get_schema_versions(schema_id)] == [(subject, 1)]


def test_an_unknown_id_is_not_found(client: Any) -> None:
    with pytest.raises(SchemaRegistryError) as raised:
        client.get_schema(2_000_000_000)
    assert (raised.value.http_status_code, raised.value.error_code) == (404, 40403)


def test_an_incompatible_schema_is_refused_once_compatibility_is_asked_for(client: Any, subject: str) -> None:
    first = client.register_schema(subject, address(subject))
    client.set_compatibility(subject, "BACKWARD")
    # A reader of the new schema has no value for a field that old records do not hold, unless it has a default.
    assert not client.test_compatibility(subject, address(subject, WITHOUT_DEFAULT))
    with pytest.raises(SchemaRegistryError) as raised:
        client.register_schema(subject, address(subject, WITHOUT_DEFAULT))
    assert raised.value.http_status_code == 409
    assert client.register_schema(subject, address(subject, WITH_DEFAULT)) != first
    assert client.get_versions(subject) == [1, 2]


def test_schemas_and_the_address_survive_a_kill(own_services: TestServices, subject: str) -> None:
    registry, schema = own_services.registry, address(subject)
    registry.start()
    url = registry.url
    with SchemaRegistryClient(client_settings(url)) as client:
        schema_id = client.register_schema(subject, schema)
    registry.kill()
    assert not registry.is_running()
    registry.start()
    with SchemaRegistryClient(client_settings(url)) as client:
        assert client.get_subjects() == [subject]
        # The registry writes Avro's members in another order.
        assert json.loads(client.get_schema(schema_id).schema_str) == json.loads(schema.schema_str)
