"""Columns that loads add for fields of registered schemas, into a real table: types by schema, and no value is lost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

from kafka_ingest.errors import STOP_AND_CALL
from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions
from tests.integration.pipeline_under_test import FedPipeline, written
from tests.protobuf_messages import message_class

ID = {"name": "id", "type": "bigint", "required": True}
LOOSE = {"max_count": 10, "max_ratio": 1.0}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
MICROS, NANOS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("micros", "nanos"))
DAY = {"type": "int", "logicalType": "date"}
PERSON = {"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}]}
AT = datetime(2026, 1, 31, 13, 45, 0, 123_456, UTC)
AT_NANOS = 1_769_867_100_123_456_789  # 2026-01-31 13:45:00.123456789 in UTC


def open_for(pipeline: FedPipeline, value_format: str, *columns: Mapping[str, Any], partitions: int = 1) -> str:
    """Make a topic, and the file of a pipeline that adds columns for what it does not read."""
    return pipeline.open(partitions, **sections(value_format, *columns))


def sections(value_format: str, *columns: Mapping[str, Any]) -> dict[str, Any]:
    value = {"format": value_format, "new_fields": "add_column", "columns": [ID, *columns]}
    kafka = {"registry": "schema_registry_default"}
    return {"kafka": kafka, "value": value, "tombstones": "count", "dead_letters": LOOSE}


def record_of(**fields: Any) -> str:
    members = [{"name": name, "type": of} for name, of in {"id": "long", **fields}.items()]
    return json.dumps({"type": "record", "name": "Order", "fields": members})


def send(pipeline: FedPipeline, serializer: Any, *values: Any, partition: int = 0) -> None:
    pipeline.send(*(written(serializer, pipeline.topic, value) for value in values), partition=partition)


def added(pipeline: FedPipeline) -> dict[str, str]:
    """Return the types of the columns that were added, which table and ledger agree on."""
    change = dict(pipeline.query("SELECT column_name, column_type FROM kafka_ingest.schema_change"))
    types = dict(
        pipeline.query(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass",
            pipeline.table,
        )
    )
    assert change == {name: types[name] for name in change}
    return change


def test_a_schema_that_gains_fields_in_the_middle_of_a_batch_gives_columns_of_its_types(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    open_for(pipeline, "avro", partitions=2)
    old = AvroSerializer(registry, record_of())
    gained = {"amount": DECIMAL, "at": MICROS, "fine": NANOS, "day": ["null", DAY], "total": "long", "by": PERSON}
    new = AvroSerializer(registry, record_of(**gained))
    full = {"amount": Decimal("-1234567.05"), "at": AT, "fine": AT_NANOS, "day": date(1969, 12, 31), "total": 2**53 + 1}
    send(pipeline, old, {"id": 0})
    send(pipeline, new, {"id": 1, "by": {"name": "ada"}, **full})
    send(pipeline, old, {"id": 2}, partition=1)
    summary = pipeline.load()
    assert (summary["counts"]["rows"], summary["counts"]["dead_letters"]) == (3, 0)
    assert added(pipeline) == {
        "amount": "numeric(9,2)",
        "at": "timestamp with time zone",
        "by": "jsonb",
        "day": "date",
        "fine": "jsonb",
        "total": "bigint",
    }
    row = (1, Decimal("-1234567.05"), AT, "2026-01-31T13:45:00.123456789Z", date(1969, 12, 31), 2**53 + 1)
    nothing = (None,) * 6
    listed = 'id, amount, at, fine, day, total, "by"'
    assert pipeline.rows(listed) == [(0, *nothing), (*row, {"name": "ada"}), (2, *nothing)]

    again = RunOptions(RunMode.RELOAD, offsets=(OffsetSpan(pipeline.topic, 0, 0, 2),), reason="once more")
    assert pipeline.load_here(again)["counts"]["rows"] == 2
    assert pipeline.rows(listed) == [(0, *nothing), (*row, {"name": "ada"}), (2, *nothing)]


def test_two_schemas_of_a_batch_give_the_wider_type_and_a_later_one_that_says_otherwise_is_a_dead_letter(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    open_for(pipeline, "avro", partitions=2)
    as_int, as_long, as_text = (AvroSerializer(registry, record_of(n=of)) for of in ("int", "long", "string"))
    send(pipeline, as_int, {"id": 0, "n": -(2**31)})
    send(pipeline, as_long, {"id": 1, "n": 2**63 - 1}, partition=1)
    assert pipeline.load_here()["counts"]["rows"] == 2
    assert added(pipeline) == {"n": "bigint"}
    assert pipeline.rows("id, n") == [(0, -(2**31)), (1, 2**63 - 1)]

    bad = written(as_text, pipeline.topic, {"id": 2, "n": "two"})
    pipeline.send(bad)
    send(pipeline, as_int, {"id": 3, "n": 3})
    summary = pipeline.load_here()
    assert (summary["counts"]["rows"], summary["counts"]["dead_letters"]) == (1, 1)
    assert added(pipeline) == {"n": "bigint"}
    assert pipeline.rows("id, n") == [(0, -(2**31)), (3, 3), (1, 2**63 - 1)]
    [[reason, detail, value]] = pipeline.dead_letters("reason, detail, value")
    assert (reason, value) == ("wrong_type", bad)
    assert 'column "n" from $.n: expected bigint' in detail


def test_schemas_of_a_batch_that_no_one_column_can_hold_stop_it_and_alter_nothing(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    open_for(pipeline, "avro")
    for number, of in enumerate(("int", "string")):
        send(pipeline, AvroSerializer(registry, record_of(n=of)), {"id": number, "n": "x" if number else 1})
    code, _, notes = pipeline.command("run", pipeline.name, "--runner", "in-process")
    assert (code, "SchemaChangeRefused" in notes, "field $.n: integer, text" in notes) == (STOP_AND_CALL, True, True)
    assert (added(pipeline), pipeline.rows("id")) == ({}, [])


def test_a_dead_letter_that_comes_back_fills_an_added_column(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    wrong, right = ({"name": "kind", "type": "bigint", "path": path} for path in ("$.kind", "$.none"))
    topic = open_for(pipeline, "avro", wrong)
    serializer = AvroSerializer(registry, record_of(kind=["long", "string"], amount=DECIMAL))
    send(
        pipeline,
        serializer,
        {"id": 0, "kind": 7, "amount": Decimal("0.10")},
        {"id": 1, "kind": "x", "amount": Decimal("1.25")},
    )
    assert pipeline.load_here()["counts"]["dead_letters"] == 1
    pipeline.write(topic, **sections("avro", right))
    code, _, notes = pipeline.command("dead-letters", "replay", pipeline.name, "--reason", "mended", "--apply")
    assert code == 0, notes
    assert pipeline.rows("id, kind, amount::text") == [(0, 7, "0.10"), (1, None, "1.25")]
    assert added(pipeline) == {"amount": "numeric(9,2)"}


PROTO = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Order {{ int64 id = 1; {} }}'


def test_a_protobuf_schema_that_gains_fields_gives_columns_of_its_types(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    open_for(pipeline, "protobuf")
    more = (
        "optional string note = 2; uint64 big = 3; google.protobuf.Timestamp at = 4; bytes hash = 5; Order inner = 6;"
    )
    old, new = (message_class(PROTO.format(body), "Order") for body in ("google.protobuf.Timestamp at = 4;", more))
    settings = {"use.deprecated.format": False}
    first = new(id=1, note="", big=2**64 - 1, hash=b"\x00\xff", inner=new(id=5))
    first.at.FromNanoseconds(AT_NANOS)
    send(pipeline, ProtobufSerializer(old, registry, settings), old(id=0))
    send(pipeline, ProtobufSerializer(new, registry, settings), first, new(id=2))
    summary = pipeline.load_here()
    assert (summary["counts"]["rows"], summary["counts"]["dead_letters"]) == (3, 0)
    assert added(pipeline) == {
        "at": "jsonb",
        "big": "numeric(20,0)",
        "hash": "bytea",
        "inner": "jsonb",
        "note": "text",
    }
    inner = {"id": 5, "big": 0, "hash": ""}
    assert pipeline.rows('id, note, big, at, hash, "inner"') == [
        (0, None, None, None, None, None),
        (1, "", 2**64 - 1, "2026-01-31T13:45:00.123456789Z", b"\x00\xff", inner),
        (2, None, 0, None, b"", None),
    ]
