"""What a schema registry answers, and who is to blame where it gives no schema."""

from __future__ import annotations

import base64
import gc
from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from kafka_ingest.errors import ConfigError, IngestError, RegistryUnavailable, SchemaMissing
from kafka_ingest.kafka import registry as module
from kafka_ingest.kafka.registry import RegisteredSchema, SchemaRegistry
from tests.registry_faults import SILENT, UNKNOWN_SCHEMA, Answer, RegistryFaults, registry_faults, told

ORDER = '{"type": "record", "name": "Order", "fields": []}'


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryFaults]:
    """A registry that knows what a test tells it; its client does not wait between its tries."""
    monkeypatch.setattr(module, "_LONGEST_WAIT_MS", 1)
    with registry_faults("") as registry:
        registry.answer = UNKNOWN_SCHEMA
        yield registry


def client(api: RegistryFaults, **more: str) -> SchemaRegistry:
    return SchemaRegistry({"connection": "registry", "url": api.url, **more})


def test_a_schema_is_asked_for_by_its_number(api: RegistryFaults) -> None:
    api.answers["/schemas/ids/7"] = told({"schema": ORDER})
    api.answers["/schemas/ids/8"] = told({"schema": "{}", "schemaType": "JSON"})
    registry = client(api)
    assert registry.schema(7) == RegisteredSchema("AVRO", ORDER, {})
    assert registry.schema(8) == RegisteredSchema("JSON", "{}", {})


def test_its_connections_close_when_nobody_has_it_any_more(
    api: RegistryFaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load in process drops the job's modules, and with them what kept its registry."""
    api.answers["/schemas/ids/7"] = told({"schema": ORDER})
    closed: list[SchemaRegistryClient] = []
    close = SchemaRegistryClient.close

    def noted(one: SchemaRegistryClient) -> None:
        closed.append(one)
        close(one)

    monkeypatch.setattr(SchemaRegistryClient, "close", noted)
    registry = client(api)
    registry.schema(7)
    assert closed == []
    del registry
    gc.collect()
    assert len(closed) == 1


def test_a_schema_is_asked_for_by_its_guid(api: RegistryFaults) -> None:
    api.answers["/schemas/guids/89791762-2336-4186-9674-299b90a802e2"] = told({"schema": ORDER})
    assert client(api).schema("89791762-2336-4186-9674-299b90a802e2").text == ORDER


def test_references_come_with_all_that_they_refer_to_each_after_what_it_needs(api: RegistryFaults) -> None:
    def version(subject: str, references: list[tuple[str, str]]) -> dict[str, object]:
        named = [{"name": name, "subject": of, "version": 1} for name, of in references]
        return {"subject": subject, "version": 1, "id": 1, "schema": f"text of {subject}", "references": named}

    api.answers["/schemas/ids/7"] = told({**version("order", [("Item", "item"), ("Money", "money")])})
    api.answers["/subjects/item/versions/1"] = told(version("item", [("Money", "money"), ("Unit", "unit")]))
    api.answers["/subjects/money/versions/1"] = told(version("money", []))
    api.answers["/subjects/unit/versions/1"] = told(version("unit", []))
    found = client(api).schema(7).references
    assert list(found.items()) == [
        ("Money", "text of money"),
        ("Unit", "text of unit"),
        ("Item", "text of item"),
    ]


def test_references_in_a_circle_end(api: RegistryFaults) -> None:
    circle = {"subject": "a", "version": 1, "id": 1, "references": [{"name": "A", "subject": "a", "version": 1}]}
    api.answers["/schemas/ids/7"] = told({"schema": "x", **circle})
    api.answers["/subjects/a/versions/1"] = told({"schema": "y", **circle})
    assert client(api).schema(7).references == {"A": "y"}


def test_a_subject_has_its_newest_schema_and_its_schemas_are_known(api: RegistryFaults) -> None:
    api.answers["/subjects/orders-value/versions/latest"] = told(
        {"subject": "s", "version": 2, "id": 7, "schema": ORDER}
    )
    api.answers["/schemas/ids/7/subjects"] = told(["orders-value"])
    registry = client(api)
    assert registry.latest("orders-value").text == ORDER
    assert registry.is_registered(7, "orders-value")
    assert not registry.is_registered(7, "orders-key")


def test_a_user_is_sent_and_a_token_is(api: RegistryFaults) -> None:
    api.answer = told(["AVRO"])
    client(api, username="load", password="geheim:1").kinds()
    assert api.requests[-1].authorization == "Basic " + base64.b64encode(b"load:geheim:1").decode()
    client(api, **{"bearer.auth.token": "abc"}).kinds()
    assert api.requests[-1].authorization == "Bearer abc"


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, {"error_code": 40403, "message": "Schema not found"}, SchemaMissing),
        (404, {"error_code": 40401, "message": "Subject not found"}, SchemaMissing),
        (404, b"<html>no such page</html>", ConfigError),
        (404, {"detail": "not found"}, ConfigError),
        (401, {"error_code": 401, "message": "Unauthorized"}, ConfigError),
        (403, b"forbidden", ConfigError),
        (405, b"", ConfigError),
        (429, {"error_code": 429, "message": "slow down"}, RegistryUnavailable),
        (408, b"", RegistryUnavailable),
        (500, {"error_code": 50001, "message": "store"}, RegistryUnavailable),
        (503, b"<html>", RegistryUnavailable),
        (200, b"<html>a login page</html>", ConfigError),
        (200, ["neither a schema", "nor an error"], ConfigError),
        (200, b"\xff\xfe", ConfigError),
    ],
)
def test_an_answer_without_a_schema_says_who_is_to_blame(
    api: RegistryFaults, status: int, body: object, expected: type[IngestError]
) -> None:
    api.answers["/schemas/ids/7"] = Answer(status, body) if isinstance(body, bytes) else told(body, status)
    with pytest.raises(expected) as raised:
        client(api).schema(7)
    assert type(raised.value) is expected
    assert raised.value.next_command


def test_a_missing_reference_is_a_missing_schema(api: RegistryFaults) -> None:
    lost = [{"name": "Money", "subject": "money", "version": 3}]
    api.answers["/schemas/ids/7"] = told({"schema": ORDER, "references": lost})
    with pytest.raises(SchemaMissing):
        client(api).schema(7)


def test_a_registry_that_is_slow_or_gone_is_unavailable(api: RegistryFaults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 0.2)
    api.answers["/schemas/ids/7"] = SILENT
    with pytest.raises(RegistryUnavailable):
        client(api).schema(7)
    with pytest.raises(RegistryUnavailable) as raised:
        SchemaRegistry({"connection": "registry", "url": "http://127.0.0.1:1"}).schema(7)
    # The words are right for a load, which is retried, and for a command, which is not.
    assert "for a load none, it is tried again; any other command: repeat it" in str(raised.value.next_command)


def test_what_is_unknown_or_refused_is_not_asked_for_again_and_what_may_pass_is(api: RegistryFaults) -> None:
    for status, tries in ((404, 1), (401, 1), (429, 4), (503, 4)):
        api.requests.clear()
        api.answers["/schemas/ids/7"] = told({"error_code": 1, "message": ""}, status)
        with pytest.raises(IngestError):
            client(api).schema(7)
        assert len(api.requests) == tries, status


def test_no_message_holds_a_secret(api: RegistryFaults) -> None:
    api.answers["/schemas/ids/7"] = told({"error_code": 401, "message": "no user geheim-1, token abc-secret"}, 401)
    registry = client(api, username="u", password="geheim-1", **{"bearer.auth.token": "abc-secret"})
    with pytest.raises(ConfigError) as raised:
        registry.schema(7)
    assert "geheim" not in str(raised.value)
    assert "abc-secret" not in str(raised.value)


@pytest.mark.parametrize(
    "more", [{"ssl.ca.pem": "no certificate"}, {"ssl.key.pem": "a key without its certificate"}, {"url": "ftp://x"}]
)
def test_a_configuration_that_the_client_cannot_use_is_a_config_error(
    api: RegistryFaults, more: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match="Connection registry cannot be used"):
        client(api, **more)
