"""The type of a column for a field of a schema that no column reads."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.decode.avro import AvroSchema
from spark_jobs.decode.protobuf import ProtobufSchema
from spark_jobs.decode.schema_places import avro_types, protobuf_types


def in_avro(of: Any, *below: str) -> str:
    """Return the type for the field ``a`` of a type, or for a member of what it holds."""
    schema = AvroSchema(json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": of}]}))
    [type_of] = avro_types(schema.root)(pa.array([b"any"], pa.large_binary()))
    return type_of(("a", *below))


def logical(kind: str, name: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def connect(kind: str, name: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.name": name, **more}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


def connect_decimal(scale: int, **more: Any) -> dict[str, Any]:
    scales = {"connect.parameters": {"scale": str(scale)}}
    return connect("bytes", "org.apache.kafka.connect.data.Decimal", **scales, **more)


VARIABLE = {
    "type": "record",
    "name": "V",
    "connect.name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}
INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "b", "type": ["null", "long"]}, {"name": "again", "type": ["null", "Inner"]}],
}
OTHER = {"type": "record", "name": "Other", "fields": [{"name": "b", "type": "long"}]}
TIMESTAMPTZ, TIMESTAMP, TIME = "timestamp with time zone", "timestamp without time zone", "time without time zone"


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        ("null", "jsonb"),
        ("boolean", "boolean"),
        ("int", "integer"),
        ("long", "bigint"),
        ("float", "real"),
        ("double", "double precision"),
        ("string", "text"),
        ("bytes", "bytea"),
        ({"type": "fixed", "name": "F", "size": 2}, "bytea"),
        ({"type": "enum", "name": "E", "symbols": ["X"]}, "text"),
        (["null", "int"], "integer"),
        ([decimal(9, 2), "null"], "numeric(9,2)"),
        (["long"], "bigint"),
        (["int", "long"], "jsonb"),
        (["null", "int", "string"], "jsonb"),
        ({"type": "array", "items": "int"}, "jsonb"),
        ({"type": "map", "values": "int"}, "jsonb"),
        (INNER, "jsonb"),
        (["null", INNER], "jsonb"),
        (decimal(9, 2), "numeric(9,2)"),
        (decimal(1_000, 1_000), "numeric(1000,1000)"),
        (decimal(1_001, 2), "numeric"),  # more digits than PostgreSQL takes in brackets
        (logical("fixed", "decimal", name="F", size=4, precision=9, scale=0), "numeric(9,0)"),
        (logical("bytes", "decimal", precision=2, scale=3), "bytea"),  # no decimal, by Avro's rules
        (connect_decimal(2), "numeric"),
        (connect_decimal(2, precision=5), "numeric(5,2)"),
        (connect_decimal(-2, precision=5), "numeric"),
        (VARIABLE, "numeric"),
        (logical("int", "date"), "date"),
        (logical("int", "time-millis"), TIME),
        (logical("long", "time-micros"), TIME),
        (logical("long", "timestamp-millis"), TIMESTAMPTZ),
        (logical("long", "timestamp-micros"), TIMESTAMPTZ),
        (logical("long", "local-timestamp-millis"), TIMESTAMP),
        (logical("long", "local-timestamp-micros"), TIMESTAMP),
        (logical("int", "timestamp-millis"), "integer"),  # belongs on a long
        (logical("string", "uuid"), "uuid"),
        (logical("fixed", "uuid", name="F", size=16), "uuid"),
        (logical("fixed", "duration", name="F", size=12), "jsonb"),
        (connect("int", "org.apache.kafka.connect.data.Date"), "date"),
        (connect("int", "org.apache.kafka.connect.data.Time"), TIME),
        (connect("long", "org.apache.kafka.connect.data.Timestamp"), TIMESTAMPTZ),
        (connect("int", "io.debezium.time.Date"), "date"),
        (connect("int", "io.debezium.time.Time"), TIME),
        (connect("long", "io.debezium.time.MicroTime"), TIME),
        (connect("long", "io.debezium.time.Timestamp"), TIMESTAMP),
        (connect("long", "io.debezium.time.MicroTimestamp"), TIMESTAMP),
        (connect("string", "io.debezium.data.Uuid"), "uuid"),
        (connect("string", "io.debezium.data.Json"), "text"),
        # A text, whose time may be finer than microseconds, or "infinity".
        (connect("string", "io.debezium.time.ZonedTimestamp"), "text"),
        (connect("long", "io.debezium.time.ZonedTimestamp"), "bigint"),
    ],
)
def test_a_field_of_avro_gets_the_type_that_holds_all_its_values(of: Any, expected: str) -> None:
    assert in_avro(of) == expected


@pytest.mark.parametrize(
    "of",
    [
        logical("long", "timestamp-nanos"),
        logical("long", "local-timestamp-nanos"),
        connect("long", "io.debezium.time.NanoTime"),
        connect("long", "io.debezium.time.NanoTimestamp"),
    ],
)
def test_times_finer_than_microseconds_get_no_column_of_times(of: Any) -> None:
    assert in_avro(of) == in_avro(["null", of]) == "jsonb"


@pytest.mark.parametrize(
    ("of", "below", "expected"),
    [
        (INNER, ("b",), "bigint"),
        (["null", INNER], ("b",), "bigint"),
        (INNER, ("again", "again", "b"), "bigint"),
        (INNER, ("again",), "jsonb"),
        (INNER, ("gone",), "jsonb"),
        ({"type": "map", "values": ["null", "long"]}, ("any key",), "bigint"),
        ({"type": "map", "values": INNER}, ("any key", "b"), "bigint"),
        ([INNER, OTHER], ("b",), "jsonb"),  # a member of one branch, which another branch may have as well
        (logical("fixed", "duration", name="F", size=12), ("days",), "jsonb"),
        (VARIABLE, ("scale",), "jsonb"),
        ("string", ("b",), "jsonb"),
    ],
)
def test_a_member_of_an_avro_field_gets_the_type_of_its_own(of: Any, below: tuple[str, ...], expected: str) -> None:
    assert in_avro(of, *below) == expected


IMPORTS = "".join(
    f'import "google/protobuf/{name}.proto";'
    for name in ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
)


def in_protobuf(body: str, *below: str, payload: bytes = b"\x00") -> str:
    """Return the type for the field ``a`` of the message ``R``, or for a member of what it holds."""
    text = f'syntax = "proto3"; {IMPORTS} import "confluent/type/decimal.proto"; message R {{ {body} }}'
    [type_of] = protobuf_types(ProtobufSchema(text, {}))(pa.array([payload], pa.large_binary()))
    return type_of(("a", *below))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("bool a = 1;", "boolean"),
        ("int32 a = 1;", "integer"),
        ("sint32 a = 1;", "integer"),
        ("sfixed32 a = 1;", "integer"),
        ("uint32 a = 1;", "bigint"),
        ("fixed32 a = 1;", "bigint"),
        ("int64 a = 1;", "bigint"),
        ("sint64 a = 1;", "bigint"),
        ("sfixed64 a = 1;", "bigint"),
        ("uint64 a = 1;", "numeric(20,0)"),  # 18446744073709551615 at most
        ("fixed64 a = 1;", "numeric(20,0)"),
        ("float a = 1;", "real"),
        ("double a = 1;", "double precision"),
        ("string a = 1;", "text"),
        ("bytes a = 1;", "bytea"),
        ("optional int32 a = 1;", "integer"),
        ("oneof o { int32 a = 1; }", "integer"),
        ("E a = 1; enum E { ZERO = 0; }", "text"),
        ("repeated int32 a = 1;", "jsonb"),
        ("map<string, int32> a = 1;", "jsonb"),
        ("R a = 1;", "jsonb"),
        ("google.protobuf.Timestamp a = 1;", "jsonb"),  # of nanoseconds
        ("google.protobuf.Duration a = 1;", "text"),
        ("google.protobuf.FieldMask a = 1;", "jsonb"),  # a list where one text would name other paths
        ("google.protobuf.Empty a = 1;", "jsonb"),
        ("google.protobuf.Struct a = 1;", "jsonb"),
        ("google.protobuf.Value a = 1;", "jsonb"),
        ("google.protobuf.ListValue a = 1;", "jsonb"),
        ("google.protobuf.NullValue a = 1;", "jsonb"),
        ("google.protobuf.Any a = 1;", "jsonb"),
        ("google.protobuf.BoolValue a = 1;", "boolean"),
        ("google.protobuf.Int32Value a = 1;", "integer"),
        ("google.protobuf.Int64Value a = 1;", "bigint"),
        ("google.protobuf.UInt32Value a = 1;", "bigint"),
        ("google.protobuf.UInt64Value a = 1;", "numeric(20,0)"),
        ("google.protobuf.FloatValue a = 1;", "real"),
        ("google.protobuf.DoubleValue a = 1;", "double precision"),
        ("google.protobuf.StringValue a = 1;", "text"),
        ("google.protobuf.BytesValue a = 1;", "bytea"),
        ("confluent.type.Decimal a = 1;", "numeric"),
    ],
)
def test_a_field_of_protobuf_gets_the_type_that_holds_all_its_values(body: str, expected: str) -> None:
    assert in_protobuf(body) == expected


@pytest.mark.parametrize(
    ("body", "below", "expected"),
    [
        ("message I { int64 b = 1; } I a = 1;", ("b",), "bigint"),
        ("R a = 1; int64 b = 2;", ("a", "a", "b"), "bigint"),
        ("R a = 1;", ("gone",), "jsonb"),
        ("map<string, int64> a = 1;", ("any key",), "bigint"),
        ("map<int32, R> a = 1; int64 b = 2;", ("7", "b"), "bigint"),
        ("map<string, int64> a = 1;", ("key", "value"), "jsonb"),
        ("google.protobuf.Struct a = 1;", ("fields",), "jsonb"),
        ("google.protobuf.Any a = 1;", ("type_url",), "jsonb"),
        ("int32 a = 1;", ("b",), "jsonb"),
    ],
)
def test_a_member_of_a_protobuf_field_gets_the_type_of_its_own(
    body: str, below: tuple[str, ...], expected: str
) -> None:
    assert in_protobuf(body, *below) == expected


def test_the_type_is_that_of_the_message_that_a_record_names() -> None:
    body = "int64 a = 1; message Inside { string a = 1; }"
    # The first message inside the first one; and a count of 63 indexes, of which none is there.
    assert in_protobuf(body, payload=b"\x04\x00\x00") == "text"
    assert in_protobuf(body, payload=b"\x7e") == "jsonb"
