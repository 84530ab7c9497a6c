"""The draft of a topic's file, from a real broker: it passes check-config and loads what was there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField

from kafka_ingest.__main__ import main
from kafka_ingest.cli.command import connection
from kafka_ingest.connections import connection_from_environment, kafka_settings_of
from kafka_ingest.kafka.client import client_config
from kafka_ingest.kafka.sample import TopicSampler, Window
from kafka_ingest.settings import IsolationLevel
from tests.benchmarks.workloads import WORKLOADS
from tests.debezium_samples import FILES, recorded_events
from tests.integration.pipeline_under_test import FedPipeline, produced, written
from tests.protobuf_messages import message_class
from tests.registry_faults import refusal, registry_faults


def drafted(pipeline: FedPipeline, *arguments: str) -> str:
    """Draft the pipeline's file into its folder; return it."""
    path = pipeline.folder / f"{pipeline.name}.yaml"
    command = ["draft", pipeline.topic, "--pipeline", pipeline.name, "--target", pipeline.table, *arguments]
    assert main([*command, "--write", str(path)]) == 0, pipeline.capture.readouterr().err
    assert main(["check-config", str(path)]) == 0
    return path.read_text()


def loaded(pipeline: FedPipeline) -> dict[str, int]:
    """Load the drafted pipeline; return its counts, none of them a dead letter."""
    counts: dict[str, int] = pipeline.load_here()["counts"]
    assert pipeline.dead_letters('"offset", reason, detail') == []
    return counts


def feed(pipeline: FedPipeline, records: Sequence[dict[str, Any]], partitions: int = 1) -> None:
    """Send records to a topic of their own."""
    pipeline.topic = pipeline.make_topic(partitions, {"max.message.bytes": "2000000"})
    with produced(pipeline.make_producer(message_max_bytes=2_000_000)) as sender:
        for record in records:
            sender.produce(pipeline.topic, **{"partition": 0, **record})


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_draft_of_a_benchmarks_topic_loads_all_of_its_records_and_a_second_one_is_equal(
    name: str, pipeline: FedPipeline
) -> None:
    workload, count = WORKLOADS[name], 5 if name == "large" else 300
    partitions = min(workload.partitions, 8)
    records = [
        {"value": workload.value(number), "partition": workload.partition(number) % partitions}
        for number in range(count)
    ]
    feed(pipeline, records, partitions)
    text = drafted(pipeline)
    pipeline.capture.readouterr()
    assert main(["draft", pipeline.topic, "--pipeline", pipeline.name, "--target", pipeline.table]) == 0
    assert pipeline.capture.readouterr().out == text
    assert loaded(pipeline)["rows"] == count


def test_the_types_of_a_draft_are_those_that_a_person_would_choose(pipeline: FedPipeline) -> None:
    feed(pipeline, [{"value": WORKLOADS["orders"].value(number)} for number in range(50)])
    text = drafted(pipeline)
    for line in ("{name: order_id, type: bigint}", "{name: amount, type: numeric}", "{name: items, type: jsonb}"):
        assert f"    - {line}\n" in text
    loaded(pipeline)
    # 2,654,435,761 = 2,654 x 1,000,003 + 427,799, which is 11, 15, 23, 59 modulo 12, 28, 24, 60.
    assert pipeline.rows("order_id, amount::text, ordered_at::text")[1] == (1, "4277.99", "2026-12-16 23:59:01+00")


@pytest.mark.parametrize("file", FILES)
def test_the_drafts_of_debezium_topics_load_all_of_their_records(file: str, pipeline: FedPipeline) -> None:
    for number, (_, events) in enumerate(recorded_events(file).items()):
        one = replace(pipeline, name=f"events_{number}")
        records = [{"key": event.key, "value": event.value, "headers": list(event.headers)} for event in events]
        feed(one, records)
        drafted(one)
        counts = loaded(one)
        assert counts["rows"] + counts["tombstones"] == len(events)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([b'{"a":"x\\u0000y"}', b'{"a":"\\\\u0000"}'], id="an escape of U+0000"),
        pytest.param([b'{"a":"x\x00y"}'], id="a byte of zero in a value"),
        pytest.param([b'{"a":"x\\u0000y","b":1}', b'{"b":2}'], id="an escape of U+0000 beside a number"),
        pytest.param([b"\xff\xfe\x80"], id="no UTF-8"),
        pytest.param([b"caf\xe9", "café".encode()], id="two encodings"),
        pytest.param([b'{"a":1}', None, b"", b"null"], id="null, no bytes and JSON null"),
        pytest.param([b'{"a":1}', None], id="a tombstone"),
        pytest.param([b'{"n":123456789012345678901234567890.5}', b'{"n":1}'], id="a number beyond 64 bits"),
        pytest.param([b"\x00\x00\x00\x00\x01\x02a", b"\x00\x00\x00\x00\x02\x02b"], id="frames of two schemas"),
        pytest.param([b"\x00\x00\x00\x00\x01\x02a", b"{", b"\x02a", b"ab\x00"], id="frames among others"),
        pytest.param([b'{"a":1e400,"b":0.1}', b'{"a":2,"b":0.10}'], id="beyond the greatest double"),
        pytest.param([b'{"\\ud800":1,"a":"\\ud800"}', b'{"a":"x"}'], id="half a surrogate pair"),
        pytest.param([b'{"id":1}', b'{"id":"1"}', b'{"id":[1]}', b'{"id":null}'], id="several types"),
        pytest.param([b'{"a":{"b":1}}', b'{"a":2}', b'{"a":null}'], id="an object and a number"),
    ],
)
def test_hard_payloads_are_drafted_so_that_they_load(values: list[bytes | None], pipeline: FedPipeline) -> None:
    feed(pipeline, [{"value": value, "key": b"\x80"} for value in values])
    drafted(pipeline)
    assert loaded(pipeline)["rows"] == len(values)


def test_a_draft_ends_where_only_aborted_and_open_transactions_are_left(pipeline: FedPipeline) -> None:
    pipeline.topic = pipeline.make_topic(3)
    sender = pipeline.make_producer(transactional_id=f"{pipeline.topic}-t")
    sender.init_transactions(30)
    sender.begin_transaction()
    for number in range(200):
        sender.produce(pipeline.topic, value=b"not json", partition=number % 2)
    sender.abort_transaction(30)
    pipeline.send('{"id": 1}', partition=0)
    sender.begin_transaction()
    sender.produce(pipeline.topic, value=b"open", partition=0)
    sender.flush(30)
    text = drafted(pipeline)
    sender.abort_transaction(30)
    assert "{name: id, type: bigint}" in text
    assert "open" not in text


def test_a_topic_without_a_readable_record_cannot_be_drafted(pipeline: FedPipeline) -> None:
    pipeline.topic = pipeline.make_topic(2)
    code, _, err = pipeline.command("draft", pipeline.topic)
    assert code == 78
    assert json.loads(err.splitlines()[-1])["error"]["found"].startswith("2 partitions with 0 offsets")


def test_an_unknown_topic_and_a_broker_that_is_away_are_told_as_everywhere(
    pipeline: FedPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = pipeline.command("draft", "there.is.no.such.topic")
    assert code == 78
    assert json.loads(err.splitlines()[-1])["error"]["class"] == "TopicMissing"
    nobody = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_NOBODY", json.dumps(nobody))
    monkeypatch.setattr("kafka_ingest.draft.topic.ANSWER_SECONDS", 1.0)
    code, _, err = pipeline.command("draft", "orders", "--connection", "nobody")
    assert code == 75
    assert json.loads(err.splitlines()[-1])["error"]["class"] == "BrokerUnavailable"


def test_a_draft_joins_no_group_and_looks_at_no_more_records_than_told(pipeline: FedPipeline) -> None:
    feed(pipeline, [{"value": b'{"id": %d}' % number, "partition": number % 3} for number in range(900)], 3)
    text = drafted(pipeline, "--records", "90")
    # The first of partition 0 is 0 and the last of partition 2 is 899.
    assert "in every record seen; 0 to 899" in text
    assert "90 records" in text
    options = ("--pipeline", pipeline.name, "--target", pipeline.table, "--records", "90")
    code, document, _ = pipeline.command("draft", pipeline.topic, *options)
    assert (code, document) == (0, {"topic": pipeline.topic, "draft": text})
    values = connection_from_environment("kafka_default")
    assert values is not None
    groups = AdminClient({"bootstrap.servers": values.extra["bootstrap.servers"]}).list_consumer_groups().result(30)
    assert "kafka-ingest-unused" not in [group.group_id for group in groups.valid]


def test_large_records_end_a_window_before_their_number_does(
    pipeline: FedPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three windows of 500 bytes each: three records of 100 bytes, which count twice that, pass it, two do not.
    monkeypatch.setattr("kafka_ingest.kafka.sample.MAX_BYTES", 1_500)
    feed(pipeline, [{"value": b'{"a":"' + b"x" * 92 + b'"}'} for _ in range(100)])
    assert "Drafted from 9 records" in drafted(pipeline, "--records", "30")


def test_records_without_a_value_are_part_of_a_sample(pipeline: FedPipeline) -> None:
    feed(pipeline, [{"value": None, "key": b"1"}, {"value": b"", "key": b"2"}, {"value": b"x", "key": b"3"}])
    kafka = kafka_settings_of(connection("kafka_default", "kafka"))
    config = client_config(kafka, IsolationLevel.READ_COMMITTED, client_id="draft", connection="kafka_default")
    found = TopicSampler(config, pipeline.topic, lambda _: None).read([[Window(0, 0, 3, 3)]])
    assert [(record.key, record.value) for record in found] == [(b"1", None), (b"2", b""), (b"3", b"x")]


def test_a_file_that_is_there_is_not_written_over(pipeline: FedPipeline) -> None:
    path = pipeline.folder / "orders.yaml"
    path.write_text("mine")
    code, _, err = pipeline.command("draft", "orders", "--write", str(path))
    assert (code, path.read_text()) == (78, "mine")
    assert json.loads(err)["error"]["next_command"] == "choose another --write, or give --force"


# Topics whose records name schemas in a registry.

REGISTRY = ("--registry", "schema_registry_default")
AT = datetime(2026, 1, 31, 13, 45, 0, 123_456, UTC)


def record_of(name: str, **fields: object) -> str:
    """Return an Avro schema of a record."""
    listed = [{"name": field, "type": of} for field, of in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": listed})


AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
MOMENT = {"type": "long", "logicalType": "timestamp-micros"}
PERSON = {"type": "record", "name": "Person", "fields": [{"name": "name", "type": ["null", "string"]}]}


def again(pipeline: FedPipeline) -> str:
    """Draft the same once more, and print it."""
    pipeline.capture.readouterr()
    options = ("--pipeline", pipeline.name, "--target", pipeline.table, *REGISTRY)
    assert main(["draft", pipeline.topic, *options]) == 0
    return pipeline.capture.readouterr().out


def test_avro_of_two_versions_with_keys_of_their_own_loads_and_a_second_draft_is_equal(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    pipeline.topic = topic = pipeline.make_topic(2)
    old = AvroSerializer(registry, record_of("Order", id="int", amount=AMOUNT, note="string"))
    new = AvroSerializer(registry, record_of("Order", id="long", amount=AMOUNT, at=MOMENT, buyer=PERSON))
    keys = AvroSerializer(registry, record_of("Key", region="string"))
    key = written(keys, topic, {"region": "no"}, MessageField.KEY)
    old_one = {"id": 1, "amount": Decimal("0.05"), "note": "n"}
    pipeline.send(written(old, topic, old_one), key=key)
    new_one = {"id": 2**40, "amount": Decimal("1.50"), "at": AT, "buyer": {"name": None}}
    pipeline.send(written(new, topic, new_one), key=key, partition=1)
    text = drafted(pipeline, *REGISTRY)
    assert "  format: avro\n" in text
    assert again(pipeline) == text
    assert loaded(pipeline)["rows"] == 2
    columns = "key_region, id, amount, at, buyer_name, note"
    assert pipeline.rows(columns) == [
        ("no", 1, Decimal("0.05"), None, None, "n"),
        ("no", 2**40, Decimal("1.50"), AT, None, None),
    ]


PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  uint64 id = 1;
  google.protobuf.Timestamp at = 2;
  google.protobuf.StringValue note = 3;
  oneof paid { int32 cents = 4; bool free = 5; }
  repeated string tags = 6;
  Buyer buyer = 7;
  message Buyer { string name = 1; }
}
"""


def test_protobuf_loads_by_its_draft_and_a_second_one_is_equal(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    pipeline.topic = topic = pipeline.make_topic(1)
    order = message_class(PROTO, "Order")
    serializer = ProtobufSerializer(order, registry, {"use.deprecated.format": False})
    full = order(id=2**64 - 1, cents=5, tags=["a"], buyer={"name": "b"}, note={"value": "n"})
    full.at.FromDatetime(AT)
    pipeline.send(written(serializer, topic, full), written(serializer, topic, order()))
    text = drafted(pipeline, *REGISTRY)
    assert "  format: protobuf\n" in text
    assert again(pipeline) == text
    assert loaded(pipeline)["rows"] == 2
    columns = "id, at, note, cents, free, tags, buyer_name"
    assert pipeline.rows(columns) == [
        (Decimal(2**64 - 1), AT, "n", 5, None, ["a"], "b"),
        (Decimal(0), None, None, None, None, [], None),
    ]


def test_json_schema_loads_by_its_draft_and_a_second_one_is_equal(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    pipeline.topic = topic = pipeline.make_topic(1)
    schema = {"title": "Order", "type": "object", "properties": {"id": {"description": "its number"}}}
    serializer = JSONSerializer(json.dumps(schema), registry)
    pipeline.send(written(serializer, topic, {"id": 2**53 + 1, "amount": 0.5}))
    text = drafted(pipeline, *REGISTRY)
    assert "  format: json_schema\n" in text
    assert "    # its number\n" in text
    assert again(pipeline) == text
    assert loaded(pipeline)["rows"] == 1
    assert pipeline.rows("id, amount") == [(2**53 + 1, Decimal("0.5"))]


def test_without_the_option_such_a_topic_is_raw_and_loads(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    pipeline.topic = topic = pipeline.make_topic(1)
    value = written(AvroSerializer(registry, record_of("Order", id="int")), topic, {"id": 1})
    pipeline.send(value)
    text = drafted(pipeline)
    assert f"# schema ids: {int.from_bytes(value[1:5], 'big')} in 1 of 1" in text
    assert "--registry" in text
    assert loaded(pipeline)["rows"] == 1
    assert pipeline.rows("payload") == [(value,)]


def test_an_unknown_schema_and_a_registry_that_is_away_are_told_as_everywhere(
    pipeline: FedPipeline, registry: SchemaRegistryClient, registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.topic = pipeline.make_topic(1)
    pipeline.send(b"\x00\x7f\xff\xff\xffx")
    code, _, err = pipeline.command("draft", pipeline.topic, *REGISTRY)
    assert (code, json.loads(err.splitlines()[-1])["error"]["class"]) == (78, "SchemaMissing")
    with registry_faults(registry_url) as faults:
        connection = {"conn_type": "http", "host": faults.url}
        monkeypatch.setenv("AIRFLOW_CONN_SCHEMA_REGISTRY_DEFAULT", json.dumps(connection))
        faults.answer = refusal(429)
        code, _, err = pipeline.command("draft", pipeline.topic, *REGISTRY)
        assert (code, json.loads(err.splitlines()[-1])["error"]["class"]) == (75, "RegistryUnavailable")
        faults.answer = refusal(401)
        code, _, err = pipeline.command("draft", pipeline.topic, *REGISTRY)
        assert (code, json.loads(err.splitlines()[-1])["error"]["class"]) == (78, "ConfigError")
    code, _, err = pipeline.command("draft", pipeline.topic, "--registry", "no_such_registry")
    assert code == 78
