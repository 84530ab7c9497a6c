"""Bad records and bad schemas of the three formats: each is a dead letter with its bytes, and its neighbours are rows.

Every batch goes through a real registry, broker and database twice: with each record once, which are read as documents,
and with so many of each that a format may read them by whole columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from kafka_ingest.kafka.registry import SCHEMA_KINDS
from spark_jobs.decode.record_bytes import FEWEST_RECORDS
from tests.avro_encoding import long, sized
from tests.integration.pipeline_under_test import FedPipeline
from tests.integration.test_registry_formats import REGISTRY
from tests.protobuf_messages import varint

AT = datetime(2026, 1, 31, 13, 45, tzinfo=UTC)
SECOND = 1_769_867_100  # since 1970, of AT
YEAR_10000 = 253_402_300_800  # likewise
#: More than fit numeric(12,2) before its point.
TOO_MANY_DIGITS = 12_345_678_901

COLUMNS = [
    {"name": "id", "type": "bigint"},
    {"name": "amount", "type": "numeric(12,2)"},
    {"name": "at", "type": "timestamptz"},
    {"name": "name", "type": "text"},
    {"name": "more", "type": "jsonb"},
]
SELECTED = "id, amount, at, name, more"


@dataclass(frozen=True)
class Sent:
    """A value, and the row that it must become, or the reason and words of its dead letter."""

    value: bytes
    row: tuple[Any, ...] | None = None
    reason: str = ""
    said: str = ""


def row(
    number: int, *, amount: Decimal | None = None, at: datetime | None = None, name: str | None = None, more: Any = None
) -> tuple[Any, ...]:
    return number, amount, at, name, more


class Subjects:
    """Registers schemas under subjects of their own, and puts the frame of one before a payload."""

    def __init__(self, registry: SchemaRegistryClient, topic: str, kind: str) -> None:
        self._registry = registry
        self._names = map(f"{topic}-{{}}".format, count())
        self._kind = kind

    def framed(self, schema: str, kind: str = "") -> Callable[[bytes], bytes]:
        number = self._registry.register_schema(next(self._names), Schema(schema, kind or self._kind))
        return lambda payload: b"\0" + number.to_bytes(4, "big") + payload


def avro_schema(**fields: object) -> str:
    listed = [{"name": name, "type": of} for name, of in fields.items()]
    return json.dumps({"type": "record", "name": "Order", "fields": listed})


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def record(name: str, **fields: object) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": of} for field, of in fields.items()]}


def decimal(number: int) -> bytes:
    return sized(number.to_bytes(8, "big", signed=True))


def avro(of: Subjects) -> list[Sent]:
    """Return good and bad records; bytes are put together by hand, as Avro's specification says."""
    plain = of.framed(avro_schema(id="long"))
    named = of.framed(avro_schema(id="long", name="string"))
    status = of.framed(avro_schema(id="long", name={"type": "enum", "name": "E", "symbols": ["open", "paid"]}))
    amount = of.framed(avro_schema(id="long", amount=logical("bytes", "decimal", precision=18, scale=2)))
    milli = of.framed(avro_schema(id="long", amount=logical("bytes", "decimal", precision=18, scale=3)))
    millis = of.framed(avro_schema(id="long", at=logical("long", "timestamp-millis")))
    nanos = of.framed(avro_schema(id="long", at=logical("long", "timestamp-nanos")))
    union = of.framed(avro_schema(id="long", more=[record("A", x="int"), record("B", y="string"), "null"]))
    tree = of.framed(avro_schema(id="long", more=["null", record("Node", next=["null", "Node"])]))
    endless = of.framed(json.dumps(record("Endless", id="Endless")))
    wide = of.framed(avro_schema(id="long", **{f"f{n}": ["null", "int"] for n in range(1_998)}, name="string"))
    return [
        Sent(plain(long(2**53 + 1)), row(2**53 + 1)),
        Sent(b'{"id": 1}', None, "malformed", "looks like JSON without a frame"),
        Sent(long(1), None, "malformed", "begins with its schema"),
        Sent(b"", None, "malformed", "found no bytes"),
        Sent(plain(b"\x80"), None, "malformed", "after 1 bytes"),
        Sent(plain(b"\xff" * 9 + b"\x02"), None, "malformed", "more than 64 bits"),
        Sent(plain(long(1) + b"\x00"), None, "malformed", "1 bytes behind its end"),
        Sent(plain(long(2)), row(2)),
        Sent(of.framed('"string"')(sized(b"a")), None, "wrong_type"),
        Sent(of.framed('["null", "long"]')(b"\x00"), None, "wrong_type"),
        Sent(
            of.framed(json_schema_of('{"type": "object"}'), "JSON")(b'{"id": 1}'),
            None,
            "malformed",
            "schema of the kind AVRO",
        ),
        Sent(endless(b""), None, "malformed", "nesting deeper"),
        Sent(named(long(3) + sized("ß".encode())), row(3, name="ß")),
        Sent(named(long(3) + sized(b"a\xff")), None, "not_utf8"),
        Sent(named(long(3) + sized(b"a\x00")), None, "unsupported_text"),
        Sent(status(long(4) + long(1)), row(4, name="paid")),
        Sent(status(long(4) + long(2)), None, "malformed", "symbol 2"),
        Sent(amount(long(5) + decimal(-999_999_999_999)), row(5, amount=Decimal("-9999999999.99"))),
        Sent(amount(long(5) + decimal(TOO_MANY_DIGITS * 100)), None, "out_of_range"),
        Sent(milli(long(5) + decimal(1_230)), row(5, amount=Decimal("1.23"))),
        Sent(milli(long(5) + decimal(1_234)), None, "out_of_range"),
        Sent(millis(long(6) + long(SECOND * 1_000)), row(6, at=AT)),
        Sent(millis(long(6) + long(YEAR_10000 * 1_000)), None, "wrong_type", "10000"),
        Sent(nanos(long(6) + long(SECOND * 10**9)), row(6, at=AT)),
        Sent(nanos(long(6) + long(SECOND * 10**9 + 1)), None, "out_of_range"),
        Sent(union(long(7) + long(0) + long(9)), row(7, more={"x": 9})),
        Sent(union(long(7) + long(1) + sized(b"z")), row(7, more={"y": "z"})),
        Sent(union(long(7) + long(3)), None, "malformed", "branch 3 of a union of 3"),
        Sent(tree(long(8) + b"\x02\x02\x00"), row(8, more={"next": {"next": None}})),
        Sent(tree(long(8) + b"\x02" * 600 + b"\x00"), None, "malformed", "nesting deeper"),
        Sent(wide(long(9) + b"\x02\x04" * 1_998 + sized(b"end")), row(9, name="end")),
        Sent(of.framed(avro_schema(id="string"))(sized(b"10")), None, "wrong_type", "id"),
        Sent(of.framed(avro_schema(id="double"))(b"\0\0\0\0\0\0\xf8\x3f"), None, "out_of_range", "1.5"),
        Sent(plain(long(10)), row(10)),
    ]


PROTO_IMPORTS = 'import "google/protobuf/timestamp.proto"; import "confluent/type/decimal.proto";'
ORDER = """
    message Order {
      optional int64 id = 1; optional string name = 2; google.protobuf.Timestamp at = 3;
      confluent.type.Decimal amount = 4; oneof of { A more = 5; B other = 6; }
      message A { int32 x = 1; repeated A inner = 2; }
      message B { string y = 1; }
    }
    message Text { string id = 1; }
    message Status { int64 id = 1; Kind name = 2; enum Kind { OPEN = 0; PAID = 1; } }
"""


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def timestamp(seconds: int, nanos: int = 0) -> bytes:
    return field(3, b"\x08" + varint(seconds) + b"\x10" + varint(nanos))


def proto_decimal(number: int, scale: int) -> bytes:
    return field(4, field(1, number.to_bytes(8, "big", signed=True)) + b"\x18" + varint(scale))


def protobuf(of: Subjects) -> list[Sent]:
    """Return good and bad records; bytes are put together by hand, as Protobuf's page on its encoding says."""
    order = of.framed(f'syntax = "proto3"; {PROTO_IMPORTS} {ORDER}')
    wide = of.framed(
        'syntax = "proto3"; message Wide { int64 id = 1;'
        + "".join(f"int32 f{number} = {number};" for number in range(2, 2_000))
        + " string name = 2000; }"
    )
    other = of.framed('syntax = "proto3"; message Order { double id = 1; }')

    def one(number: int, more: bytes = b"") -> bytes:
        return order(b"\0\x08" + varint(number) + more)

    nested = b""
    for _ in range(101):
        nested = field(2, nested)
    return [
        Sent(one(2**53 + 1), row(2**53 + 1)),
        Sent(b'{"id": 1}', None, "malformed", "looks like JSON without a frame"),
        Sent(b"\x08\x01", None, "malformed", "begins with its schema"),
        Sent(order(b""), None, "malformed", "message indexes"),
        Sent(order(b"\x02\x08\x08\x01"), None, "malformed", "the index 4"),
        Sent(order(b"\0\x08\xff"), None, "malformed", "bytes that are none"),
        Sent(order(b"\0\x08" + b"\xff" * 10 + b"\x01"), None, "malformed", "bytes that are none"),
        Sent(one(1, b"\xff"), None, "malformed", "bytes that are none"),
        Sent(one(2), row(2)),
        Sent(of.framed('"string"', "AVRO")(b"\0"), None, "malformed", "schema of the kind PROTOBUF"),
        Sent(of.framed('syntax = "proto3"; enum Kind { OPEN = 0; }')(b"\0"), None, "malformed", "message indexes"),
        Sent(one(3, field(2, "ß".encode())), row(3, name="ß")),
        Sent(one(3, field(2, b"a\xff")), None, "not_utf8"),
        Sent(one(3, field(2, b"a\x00")), None, "unsupported_text"),
        Sent(order(b"\x02\x04\x08\x04\x10\x01"), row(4, name="PAID")),
        Sent(order(b"\x02\x04\x08\x04\x10\x4d"), None, "wrong_type", "77"),
        Sent(one(5, proto_decimal(-999_999_999_999, 2)), row(5, amount=Decimal("-9999999999.99"))),
        Sent(one(5, proto_decimal(TOO_MANY_DIGITS, 0)), None, "out_of_range"),
        Sent(one(5, proto_decimal(1_234, 3)), None, "out_of_range"),
        Sent(one(6, timestamp(SECOND)), row(6, at=AT)),
        Sent(one(6, timestamp(SECOND, 1)), None, "out_of_range"),
        Sent(one(6, timestamp(YEAR_10000)), None, "wrong_type", str(YEAR_10000)),
        Sent(one(7, field(5, b"\x08\x09")), row(7, more={"x": 9, "inner": []})),
        Sent(one(7, field(6, field(1, b"z"))), row(7)),  # the other member, which no column reads
        Sent(one(8, field(5, field(2, b""))), row(8, more={"x": 0, "inner": [{"x": 0, "inner": []}]})),
        Sent(one(8, field(5, nested)), None, "malformed", "bytes that are none"),
        Sent(wide(b"\0\x08\x09" + field(2_000, b"end")), row(9, name="end")),
        Sent(order(b"\x02\x02" + field(1, b"10")), None, "wrong_type", "id"),
        Sent(other(b"\0\x09\0\0\0\0\0\0\xf8\x3f"), None, "out_of_range", "1.5"),
        Sent(one(10), row(10)),
    ]


def json_schema_of(text: str) -> str:
    """Say that a JSON document is a schema, which the registry wants to read."""
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", **json.loads(text)})


def json_schema(of: Subjects) -> list[Sent]:
    plain = of.framed(json_schema_of('{"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}'))
    text = of.framed(json_schema_of('{"title": "Order", "type": "object", "properties": {"id": {"type": "string"}}}'))
    endless = of.framed(json_schema_of('{"title": "Tree", "type": "object", "properties": {"more": {"$ref": "#"}}}'))
    any_of = of.framed(json_schema_of('{"properties": {"more": {"oneOf": [{"type": "object"}, {"type": "array"}]}}}'))
    wide = {f"f{number}": number for number in range(1_998)}
    wide_schema = of.framed(
        json_schema_of(json.dumps({"type": "object", "properties": {key: {"type": "integer"} for key in wide}}))
    )
    return [
        Sent(plain(b'{"id": 9007199254740993}'), row(2**53 + 1)),
        Sent(b'{"id": 1}', None, "malformed", "looks like JSON without a frame"),
        Sent(b"", None, "malformed", "found no bytes"),
        Sent(plain(b'{"id": 1'), None, "malformed"),
        Sent(plain(b'{"id": 1}\x00'), None, "malformed"),
        Sent(plain(b'{"id": 1}{"id": 2}'), None, "malformed"),
        Sent(plain(b""), None, "malformed"),
        Sent(plain(b'{"id": 2}'), row(2)),
        Sent(of.framed(json_schema_of('{"type": "string"}'))(b'"a"'), None, "wrong_type"),
        Sent(of.framed('"string"', "AVRO")(sized(b"a")), None, "malformed", "schema of the kind JSON"),
        Sent(plain('{"id": 3, "name": "ß"}'.encode()), row(3, name="ß")),
        Sent(plain(b'{"id": 3, "name": "\xff"}'), None, "not_utf8"),
        Sent(plain(rb'{"id": 3, "name": "\u0000"}'), None, "unsupported_text"),
        Sent(plain(b'{"id": 5, "amount": -9999999999.99}'), row(5, amount=Decimal("-9999999999.99"))),
        Sent(plain(b'{"id": 5, "amount": 12345678901}'), None, "out_of_range"),
        Sent(plain(b'{"id": 5, "amount": 1.234}'), None, "out_of_range"),
        Sent(plain(b'{"id": 6, "at": "2026-01-31T13:45:00Z"}'), row(6, at=AT)),
        Sent(plain(b'{"id": 6, "at": "2026-01-31T13:45:00.000000001Z"}'), None, "out_of_range"),
        Sent(plain(b'{"id": 6, "at": "10000-01-01T00:00:00Z"}'), None, "wrong_type", "10000"),
        Sent(any_of(b'{"id": 7, "more": {"x": 9}}'), row(7, more={"x": 9})),
        Sent(any_of(b'{"id": 7, "more": [1]}'), row(7, more=[1])),
        Sent(endless(b'{"id": 8, "more": {"more": {}}}'), row(8, more={"more": {}})),
        Sent(endless(b'{"id": 8, "more": ' + b'{"more":' * 600 + b"{}" + b"}" * 601), None, "malformed", "nesting"),
        Sent(wide_schema(json.dumps({"id": 9, **wide, "name": "end"}).encode()), row(9, name="end")),
        Sent(text(b'{"id": "10"}'), None, "wrong_type", "id"),
        Sent(plain(b'{"id": 1.5}'), None, "out_of_range", "1.5"),
        Sent(plain(b'{"id": 10}'), row(10)),
    ]


@pytest.mark.parametrize("times", [1, FEWEST_RECORDS], ids=["few", "many"])
@pytest.mark.parametrize("records", [avro, protobuf, json_schema])
def test_a_bad_record_is_a_dead_letter_with_its_bytes_and_its_neighbours_are_rows(
    records: Callable[[Subjects], list[Sent]], times: int, pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    name = records.__name__
    limits = {"max_count": 10_000, "max_ratio": 1.0, "max_consecutive": 10_000}
    value = {"format": name, "columns": COLUMNS}
    topic = pipeline.open(kafka=REGISTRY, value=value, tombstones="count", dead_letters=limits)
    sent = records(Subjects(registry, topic, SCHEMA_KINDS[name])) * times
    pipeline.send(*(record.value for record in sent))
    counts = pipeline.load_here()["counts"]
    expected = [(offset, *record.row) for offset, record in enumerate(sent) if record.row is not None]
    assert counts["rows"] + counts["dead_letters"] == len(sent)
    assert pipeline.rows(f"kafka_offset, {SELECTED}") == expected
    found = pipeline.dead_letters('"offset", value, reason, detail')
    bad = [(offset, record) for offset, record in enumerate(sent) if record.row is None]
    assert [letter[:3] for letter in found] == [(offset, record.value, record.reason) for offset, record in bad]
    assert [detail for (_, record), (*_, detail) in zip(bad, found, strict=True) if record.said not in detail] == []


def test_a_schema_of_another_subject_is_a_dead_letter_and_its_neighbours_are_rows(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    value = {"format": "avro", "columns": COLUMNS[:1], "subject": "placeholder"}
    limits = {"max_ratio": 1.0}
    topic = pipeline.open(kafka=REGISTRY, value=value, tombstones="count", dead_letters=limits)
    value["subject"] = f"{topic}-value"
    pipeline.write(topic, kafka=REGISTRY, value=value, tombstones="count", dead_letters=limits)
    numbers = {}
    for subject, field_type in ((f"{topic}-value", "int"), (f"{topic}-key", "long")):
        schema = json.dumps({**record("Order", id=field_type), "namespace": topic.replace("-", "_")})
        numbers[subject] = b"\0" + registry.register_schema(subject, Schema(schema, "AVRO")).to_bytes(4, "big")
    good, bad = (numbers[f"{topic}-{of}"] for of in ("value", "key"))
    pipeline.send(good + long(1), bad + long(2), good + long(3))
    pipeline.load_here()
    assert pipeline.rows("kafka_offset, id") == [(0, 1), (2, 3)]
    [[offset, kept, reason, detail]] = pipeline.dead_letters('"offset", value, reason, detail')
    assert (offset, kept, reason) == (1, bad + long(2), "malformed")
    assert f"expected a schema of the subject {topic}-value" in detail


def test_a_bad_key_is_a_dead_letter_with_its_bytes_and_its_neighbours_are_rows(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    columns = [COLUMNS[0], {"name": "region", "type": "varchar(2)", "from": "key"}]
    topic = pipeline.open(
        kafka=REGISTRY,
        key={"format": "avro"},
        value={"format": "avro", "columns": columns},
        tombstones="count",
        dead_letters={"max_ratio": 1.0},
    )
    value = Subjects(registry, f"{topic}-value", "AVRO").framed(avro_schema(id="long"))(long(1))
    key = Subjects(registry, f"{topic}-key", "AVRO").framed(avro_schema(region="string"))
    bad = [b"no", key(b"\x80"), key(sized(b"no") + b"\x00"), key(sized(b"\xff")), key(sized(b"nor"))]
    for one in (key(sized(b"no")), *bad, key(sized(b"se"))):
        pipeline.send(value, key=one)
    pipeline.load_here()
    assert pipeline.rows("kafka_offset, id, region") == [(0, 1, "no"), (6, 1, "se")]
    reasons = ["malformed", "malformed", "malformed", "not_utf8", "too_long"]
    expected = [(offset, one, value, reason) for offset, (one, reason) in enumerate(zip(bad, reasons, strict=True), 1)]
    assert pipeline.dead_letters('"offset", key, value, reason') == expected


def test_framed_bytes_in_a_topic_of_plain_json_are_dead_letters_and_their_neighbours_are_rows(
    pipeline: FedPipeline, registry: SchemaRegistryClient
) -> None:
    topic = pipeline.open(
        value={"format": "json", "columns": COLUMNS[:1]}, tombstones="count", dead_letters={"max_ratio": 1.0}
    )
    avro_one = Subjects(registry, topic, "AVRO").framed(avro_schema(id="long"))(long(2))
    json_one = Subjects(registry, f"{topic}-json", "JSON").framed(json_schema_of('{"type": "object"}'))(b'{"id": 3}')
    proto_one = Subjects(registry, f"{topic}-proto", "PROTOBUF").framed(
        'syntax = "proto3"; message Order { int64 id = 1; }'
    )(b"\0\x08\x04")
    pipeline.send(b'{"id": 1}', avro_one, json_one, proto_one, b'{"id": 5}')
    pipeline.load_here()
    assert pipeline.rows("kafka_offset, id") == [(0, 1), (4, 5)]
    assert pipeline.dead_letters('"offset", value, reason') == [
        (1, avro_one, "malformed"),
        (2, json_one, "malformed"),
        (3, proto_one, "malformed"),
    ]
