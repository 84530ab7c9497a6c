"""Records that other clients wrote with a schema registry, from a real topic into a real table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from kafka_ingest.errors import RETRY_LATER, STOP_AND_CALL
from tests.integration.pipeline_under_test import FedPipeline, written
from tests.protobuf_messages import message_class
from tests.registry_faults import LOGIN_PAGE, refusal, registry_faults

PEM_FILES = {"ssl.ca.pem": "ca.crt", "ssl.certificate.pem": "client.crt", "ssl.key.pem": "client.key"}
REGISTRY = {"registry": "schema_registry_default"}

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "ordered_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "trace", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
COLUMNS = [
    {"name": "id", "type": "bigint", "required": True},
    {"name": "customer", "type": "text"},
    {"name": "amount", "type": "numeric(12,2)"},
    {"name": "ordered_at", "type": "timestamptz"},
    {"name": "day", "type": "date"},
    {"name": "trace", "type": "uuid"},
    {"name": "tags", "type": "jsonb"},
]
AT = datetime(2026, 1, 31, 13, 45, 0, 123_456, UTC)
TRACE = UUID("89791762-2336-4186-9674-299b90a802e2")
VALUE = {
    "id": 2**53 + 1,
    "customer": None,
    "amount": Decimal("-1234567890.05"),
    "ordered_at": AT,
    "day": date(1969, 12, 31),
    "trace": TRACE,
    "tags": ["a", "ß"],
}
ROW = (2**53 + 1, None, Decimal("-1234567890.05"), AT, date(1969, 12, 31), str(TRACE), ["a", "ß"])


def open_for(pipeline: FedPipeline, value: Mapping[str, Any], **sections: Any) -> str:
    """Make a topic and the file of a pipeline that reads it with the registry."""
    limits = {"max_count": 10, "max_ratio": 1.0}
    return pipeline.open(kafka=REGISTRY, value=value, tombstones="count", dead_letters=limits, **sections)


def test_avro_of_the_confluent_serializer_is_stored_exactly(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    topic = open_for(pipeline, {"format": "avro", "columns": COLUMNS})
    serializer = AvroSerializer(registry, json.dumps(ORDER))
    pipeline.send(written(serializer, topic, VALUE))
    assert pipeline.load()["counts"]["rows"] == 1
    assert pipeline.rows("id, customer, amount, ordered_at, day, trace::text, tags") == [ROW]


def test_a_schema_that_changes_in_the_middle_of_a_batch_is_read_record_by_record(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    columns = [
        {"name": "id", "type": "numeric", "required": True},
        {"name": "customer", "type": "text", "path": ["$.customer.name", "$.customer_name"]},
        {"name": "note", "type": "text"},
    ]
    topic = open_for(pipeline, {"format": "avro", "columns": columns})
    old = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "int"}, {"name": "customer_name", "type": "string"}],
    }
    person = {"type": "record", "name": "Person", "fields": [{"name": "name", "type": ["null", "string"]}]}
    new = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "note", "type": ["null", "string", "long"]},
            {"name": "customer", "type": person},
            {"name": "id", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 0}},
        ],
    }
    before, after = (AvroSerializer(registry, json.dumps(schema)) for schema in (old, new))
    pipeline.send(
        written(before, topic, {"id": 1, "customer_name": "a"}),
        written(after, topic, {"id": Decimal(10**29), "customer": {"name": None}, "note": "n"}),
        written(before, topic, {"id": 3, "customer_name": "c"}),
        written(after, topic, {"id": Decimal(4), "customer": {"name": "d"}, "note": 7}),
    )
    counts = pipeline.load()["counts"]
    assert (counts["rows"], counts["dead_letters"]) == (3, 1)
    assert pipeline.rows("id, customer, note") == [(1, "a", None), (10**29, None, "n"), (3, "c", None)]
    [[place, reason, detail]] = pipeline.dead_letters('"offset", reason, detail')
    assert (place, reason, "the number 7" in detail) == (3, "wrong_type", True)


def test_references_between_schemas_are_followed(pipeline: FedPipeline, registry: SchemaRegistryClient) -> None:
    money = {
        "type": "record",
        "name": "Money",
        "namespace": "shop",
        "fields": [{"name": "cents", "type": "long"}, {"name": "currency", "type": "string"}],
    }
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "total", "type": "shop.Money"}],
    }
    columns = [{"name": "cents", "type": "integer", "path": "$.total.cents"}, {"name": "total", "type": "jsonb"}]
    topic = open_for(pipeline, {"format": "avro", "columns": columns, "subject": "placeholder"})
    subject = f"{topic}-money"
    registry.register_schema(subject, Schema(json.dumps(money), "AVRO"))
    schema = Schema(json.dumps(order), "AVRO", [SchemaReference("shop.Money", subject, 1)])
    serializer = AvroSerializer(registry, schema)
    pipeline.write(topic, kafka=REGISTRY, value={"format": "avro", "columns": columns, "subject": f"{topic}-value"})
    pipeline.send(written(serializer, topic, {"total": {"cents": 5, "currency": "EUR"}}))
    assert pipeline.load()["counts"]["rows"] == 1
    assert pipeline.rows("cents, total") == [(5, {"cents": 5, "currency": "EUR"})]


PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Outer {
  message Order {
    int64 id = 1;
    optional string customer = 2;
    google.protobuf.Timestamp ordered_at = 3;
    repeated string tags = 4;
    bytes hash = 5;
    double ratio = 6;
  }
}
"""


def test_protobuf_of_the_confluent_serializer_is_stored_exactly(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    columns = [
        {"name": "id", "type": "bigint"},
        {"name": "customer", "type": "text"},
        {"name": "ordered_at", "type": "timestamptz"},
        {"name": "tags", "type": "text[]"},
        {"name": "hash", "type": "bytea"},
        {"name": "ratio", "type": "double precision"},
    ]
    topic = open_for(pipeline, {"format": "protobuf", "columns": columns})
    order = message_class(PROTO, "Outer.Order")
    serializer = ProtobufSerializer(order, registry, {"use.deprecated.format": False})
    full = order(id=2**53 + 1, customer="", tags=["a", "ß"], hash=b"\x00\xff", ratio=float("-inf"))
    full.ordered_at.FromDatetime(AT)
    pipeline.send(written(serializer, topic, full), written(serializer, topic, order()))
    pipeline.load()
    assert pipeline.dead_letters("detail") == []
    assert pipeline.rows("*")[0][:6] == (2**53 + 1, "", AT, ["a", "ß"], b"\x00\xff", float("-inf"))
    assert pipeline.rows("*")[1][:6] == (0, None, None, [], b"", 0.0)


def test_json_schema_of_the_confluent_serializer_is_stored_exactly(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    columns = [{"name": "id", "type": "bigint"}, {"name": "at", "type": "timestamptz", "as": "epoch_millis"}]
    topic = open_for(pipeline, {"format": "json_schema", "columns": columns})
    schema = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}
    serializer = JSONSerializer(json.dumps(schema), registry)
    pipeline.send(written(serializer, topic, {"id": 2**53 + 1, "at": 1_700_000_000_123}))
    pipeline.load()
    assert pipeline.rows("id, at") == [(2**53 + 1, datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC))]


def test_keys_have_schemas_of_their_own_and_headers_may_name_them(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    columns = [
        {"name": "region", "type": "text", "from": "key"},
        {"name": "whole_key", "type": "jsonb", "from": "key", "path": "$"},
        {"name": "id", "type": "bigint"},
    ]
    key = {"type": "record", "name": "Key", "fields": [{"name": "region", "type": "string"}]}
    topic = open_for(pipeline, {"format": "avro", "columns": columns}, key={"format": "avro"})
    keys = AvroSerializer(registry, json.dumps(key))
    values = AvroSerializer(registry, json.dumps(ORDER))
    pipeline.send(written(values, topic, VALUE), key=written(keys, topic, {"region": "no"}, MessageField.KEY))
    framed = written(values, topic, {**VALUE, "id": 5})  # this registry has no GUIDs, which newer serializers put there
    pipeline.send(framed[5:], headers=[("__value_schema_id", framed[:5])])
    assert pipeline.load()["counts"]["rows"] == 2
    assert pipeline.rows("region, whole_key, id") == [("no", {"region": "no"}, 2**53 + 1), (None, None, 5)]


def test_records_that_do_not_fit_are_dead_letters_with_their_bytes_and_the_topic_goes_on(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    topic = open_for(pipeline, {"format": "avro", "columns": COLUMNS})
    good = written(AvroSerializer(registry, json.dumps(ORDER)), topic, VALUE)
    bad = [b"", b"plain", good[:-1], good + b"\x00", good[:5] + b"\x80" * 11]
    pipeline.send(good, *bad, good)
    counts = pipeline.load()["counts"]
    assert (counts["rows"], counts["dead_letters"]) == (2, 5)
    kept = [(offset, "malformed", value) for offset, value in enumerate(bad, start=1)]
    assert pipeline.dead_letters('"offset", reason, value') == kept


def test_an_unknown_schema_stops_the_load_and_loses_nothing(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    topic = open_for(pipeline, {"format": "avro", "columns": COLUMNS})
    good = written(AvroSerializer(registry, json.dumps(ORDER)), topic, VALUE)
    pipeline.send(good)
    pipeline.load()
    pipeline.send(b"\x00\x7f\xff\xff\xff" + good[5:], good)
    code, _, notes = pipeline.command("run", pipeline.name, "--runner", "in-process")
    assert (code, "SchemaMissing" in notes) == (STOP_AND_CALL, True)
    assert pipeline.dead_letters("*") == []
    assert len(pipeline.rows("id")) == 1


def use(monkeypatch: pytest.MonkeyPatch, url: str, **more: object) -> None:
    """Let the pipeline's connection lead to a URL."""
    connection = {"conn_type": "http", "host": url, **more}
    monkeypatch.setenv("AIRFLOW_CONN_SCHEMA_REGISTRY_DEFAULT", json.dumps(connection))


def test_a_registry_that_is_down_busy_or_strange_costs_no_record_and_the_next_run_loads_them(
    pipeline: FedPipeline, registry: SchemaRegistryClient, registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = open_for(pipeline, {"format": "avro", "columns": COLUMNS})
    pipeline.send(written(AvroSerializer(registry, json.dumps(ORDER)), topic, VALUE))
    with registry_faults(registry_url) as faults:
        use(monkeypatch, faults.url)
        for answer, expected, code in (
            (refusal(429), "RegistryUnavailable", RETRY_LATER),
            (refusal(401), "ConfigError", STOP_AND_CALL),
            (LOGIN_PAGE, "ConfigError", STOP_AND_CALL),
        ):
            faults.answer = answer
            found, _, notes = pipeline.command("run", pipeline.name, "--runner", "in-process")
            assert (found, expected in notes) == (code, True), notes
            assert pipeline.dead_letters("*") == pipeline.rows("id") == []
        faults.answer = None
        assert pipeline.load()["counts"]["rows"] == 1


def test_tls_needs_the_ca_and_where_it_is_asked_for_the_clients_certificate(
    pipeline: FedPipeline,
    registry: SchemaRegistryClient,
    registry_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = open_for(pipeline, {"format": "avro", "columns": COLUMNS})
    pipeline.send(written(AvroSerializer(registry, json.dumps(ORDER)), topic, VALUE))
    with registry_faults(registry_url, certificates=tmp_path, asks_for_certificate=True) as faults:
        use(monkeypatch, faults.url)
        code, _, notes = pipeline.command("run", pipeline.name, "--runner", "in-process")
        assert (code, "cannot be trusted" in notes) == (STOP_AND_CALL, True), notes
        texts = {name: (tmp_path / file).read_text() for name, file in PEM_FILES.items()}
        use(monkeypatch, faults.url, extra=texts, login="me", password="geheim")
        assert pipeline.load()["counts"]["rows"] == 1
        assert {request.authorization for request in faults.requests} == {"Basic bWU6Z2VoZWlt"}


def test_dead_letters_of_a_registrys_format_come_back_when_the_mapping_was_mended(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    wrong = [*COLUMNS, {"name": "tag", "type": "bigint", "path": "$.tags"}]
    topic = open_for(pipeline, {"format": "avro", "columns": wrong})
    pipeline.send(written(AvroSerializer(registry, json.dumps(ORDER)), topic, VALUE))
    assert pipeline.load()["counts"]["dead_letters"] == 1
    right = [*COLUMNS, {"name": "tag", "type": "bigint", "path": "$.none"}]
    pipeline.write(topic, kafka=REGISTRY, value={"format": "avro", "columns": right}, tombstones="count")
    code, _, notes = pipeline.command("dead-letters", "replay", pipeline.name, "--reason", "mended", "--apply")
    assert code == 0, notes
    assert pipeline.rows("id, tag") == [(VALUE["id"], None)]


def test_preflight_says_that_the_registry_answers_and_check_config_needs_none(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    topic = open_for(pipeline, {"format": "avro", "columns": COLUMNS})
    AvroSerializer(registry, json.dumps(ORDER))({**VALUE}, SerializationContext(topic, MessageField.VALUE))
    _, found, _ = pipeline.command("preflight", pipeline.name)
    assert {line["check"]: line["result"] for line in found}["schema registry"] == "pass"
