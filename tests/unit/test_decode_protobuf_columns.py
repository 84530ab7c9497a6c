"""The quick way of Protobuf: which values it takes, hand-worked, and that it takes nothing else."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kafka_ingest.column_types import parse_column_type
from spark_jobs.decode import proto_columns, proto_leaves
from spark_jobs.decode.proto_columns import ProtobufColumns
from spark_jobs.decode.protobuf import ProtobufSchema
from spark_jobs.decode.values import ColumnPlan
from tests.protobuf_messages import varint

IMPORTS = "".join(
    f'import "{name}.proto";'
    for name in (
        *(f"google/protobuf/{name}" for name in ("timestamp", "wrappers", "duration", "struct", "any")),
        "confluent/type/decimal",
    )
)


@pytest.fixture(autouse=True)
def few_records_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proto_columns, "FEWEST_RECORDS", 1)
    monkeypatch.setattr(proto_leaves, "FEWEST_RECORDS", 1)


def schema_of(fields: str, *, more: str = "", syntax: str = "proto3") -> ProtobufSchema:
    return ProtobufSchema(f'syntax = "{syntax}"; {IMPORTS} message R {{ {fields} }} {more}', {})


def plan(type_name: str, *path: str, others: Sequence[tuple[str, ...]] = ()) -> ColumnPlan:
    return ColumnPlan("c", parse_column_type(type_name), path, other_paths=tuple(others))


def read(schema: ProtobufSchema, messages: Sequence[bytes], *plans: ColumnPlan) -> list[list[Any]]:
    """Return the values of each column; "?" for a record in doubt."""
    columns = ProtobufColumns(schema).columns(pa.array([b"\0" + of for of in messages], pa.large_binary()), plans)
    assert columns is not None
    return [
        ["?" if row in column.doubtful else value for row, value in enumerate(column.array.to_pylist())]
        for column in columns
    ]


def field(number: int, content: bytes | int) -> bytes:
    """Write a field: bytes with their length, or a number."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content % 2**64)
    return varint(number << 3 | 2) + varint(len(content)) + content


def decimal(value: bytes, scale: int = 0) -> bytes:
    return field(1, field(1, value) + field(2, 9) + (field(3, scale) if scale else b""))


def instant(seconds: int, nanos: int = 0) -> bytes:
    return field(1, (field(1, seconds) if seconds else b"") + (field(2, nanos) if nanos else b""))


SECOND = 1_769_867_100  # 2026-01-31T13:45:00Z
KIND = "enum Kind { ZERO = 0; TWO = 2; MINUS = -1; }"
TIME, DECIMAL = "google.protobuf.Timestamp", "confluent.type.Decimal"
TAKEN: list[tuple[str, str, list[bytes], list[Any]]] = [
    ("bool", "boolean", [field(1, 1), b"", field(1, 2)], [True, False, "?"]),
    ("int32", "integer", [field(1, 2**31 - 1), field(1, -1), b"", field(1, 2**31)], [2**31 - 1, -1, 0, "?"]),
    ("int32", "smallint", [field(1, 32_767), field(1, 32_768)], [32_767, "?"]),
    ("int64", "bigint", [field(1, -(2**63)), field(1, 300)], [-(2**63), 300]),
    ("uint32", "bigint", [field(1, 2**32 - 1), field(1, 2**32)], [2**32 - 1, "?"]),
    ("uint64", "numeric", [field(1, 2**63 - 1), field(1, 2**63)], ["9223372036854775807", "?"]),
    ("sint32", "integer", [field(1, 2**32 - 1), field(1, 3), field(1, 2**32)], [-(2**31), -2, "?"]),
    ("sint32", "bigint", [field(1, 2**32)], ["?"]),
    ("sint64", "bigint", [field(1, 2**64 - 1), field(1, 4)], [-(2**63), 2]),
    ("fixed32", "bigint", [b"\x0d\xff\xff\xff\xff"], [2**32 - 1]),
    ("sfixed32", "integer", [b"\x0d\xff\xff\xff\xff"], [-1]),
    ("fixed64", "numeric", [b"\x09" + b"\xff" * 7 + b"\x7f", b"\x09" + b"\xff" * 8], [str(2**63 - 1), "?"]),
    ("sfixed64", "bigint", [b"\x09" + b"\xff" * 8, b""], [-1, 0]),
    ("float", "real", [b"\x0d" + struct.pack("<f", 1.5), b""], [1.5, 0.0]),
    ("float", "double precision", [b"\x0d\xcd\xcc\xcc\x3d"], [0.100000001490116119384765625]),
    ("double", "double precision", [b"\x09" + struct.pack("<d", v) for v in (0.1, float("inf"))], [0.1, "?"]),
    ("string", "text", [field(1, "grün".encode()), b"", field(1, b"a\x00")], ["grün", "", "?"]),
    ("string", "varchar(2)", [field(1, b"ab"), field(1, b"abc")], ["ab", "?"]),
    ("string", "integer", [b"", field(1, b"1")], ["?", "?"]),
    ("string", "jsonb", [field(1, b'"'), b""], ['"\\""', '""']),
    ("bytes", "bytea", [field(1, b"\x00\xff"), b""], [b"\x00\xff", b""]),
    ("Kind", "text", [field(1, 2), field(1, -1), b"", field(1, 1)], ["TWO", "MINUS", "ZERO", "?"]),
    ("optional int32", "integer", [field(1, 0), b""], [0, None]),
    ("optional string", "text", [field(1, b""), b""], ["", None]),
    (TIME, "timestamptz", [instant(SECOND, 1_000), b""], ["2026-01-31T13:45:00.000001Z", None]),
    (TIME, "timestamptz", [instant(SECOND, 1), instant(SECOND, 10**9), instant(2**62)], ["?", "?", "?"]),
    (TIME, "timestamptz", [instant(-62_135_596_801), instant(253_402_300_800)], ["?", "?"]),
    (TIME, "jsonb", [instant(SECOND), instant(0, 1)], ['"2026-01-31T13:45:00Z"', '"1970-01-01T00:00:00.000000001Z"']),
    (TIME, "jsonb", [instant(SECOND, 2**32 + 5), instant(0, -1)], ["?", '"0 s and -1 ns since 1970"']),
    (DECIMAL, "jsonb", [decimal(b"\x05", 2**32), decimal(b"\x05", -1)], ["?", "5e1"]),
    (DECIMAL, "numeric(6,2)", [decimal(b"\x30\x39", 2), decimal(b"\xff", 2), b""], ["123.45", "-0.01", None]),
    (DECIMAL, "numeric", [decimal(b"\x05", 1), decimal(b"\x05", 2), decimal(b"", 1)], ["0.5", "?", "?"]),
    (DECIMAL, "numeric", [decimal(b"\x80" + bytes(7), 2), decimal(bytes(9), 2)], ["-92233720368547758.08", "?"]),
    (DECIMAL, "numeric(5,1)", [decimal(b"\x7d", 2), decimal(b"\x78", 2)], ["?", "?"]),
    ("google.protobuf.Int64Value", "bigint", [field(1, field(1, 7)), field(1, b""), b""], [7, 0, None]),
    ("google.protobuf.StringValue", "jsonb", [field(1, field(1, b"a")), field(1, b""), b""], ['"a"', '""', None]),
    ("repeated int32", "jsonb", [field(1, b"\x01\x02"), b""], ["[1,2]", "[]"]),
    ("repeated int32", "jsonb", [field(1, 1) + field(1, 2), b""], ["[1,2]", "[]"]),
    ("repeated int32", "integer[]", [field(1, b"\x01") + field(1, b"\x02")], ["{1,2}"]),
    ("repeated fixed32", "jsonb", [field(1, b"\x01\0\0\0\x02\0\0\0"), field(1, b"\x01\0\0")], ["[1,2]", "?"]),
    ("repeated int32", "jsonb", [field(1, 1) + field(1, b"\x02"), field(1, b"\x02")], ["?", "[2]"]),
    ("repeated string", "jsonb", [field(1, b"a") + field(1, b"b"), field(1, b"c")], ['["a","b"]', '["c"]']),
    ("repeated In", "jsonb", [field(1, field(1, 5)) + field(1, b""), b""], ['[{"x":5},{"x":0}]', "[]"]),
    ("In", "jsonb", [field(1, b"") + field(9, b"unknown"), b""], ['{"x":0}', None]),
]


@pytest.mark.parametrize(("of", "column", "messages", "values"), TAKEN)
def test_values_are_taken_or_doubted(of: str, column: str, messages: list[bytes], values: list[Any]) -> None:
    schema = schema_of(f"{of} a = 1;", more=f"{KIND} message In {{ int32 x = 1; optional int32 y = 2; }}")
    found = read(schema, messages, plan(column, "a"))
    assert found == [values]


DAMAGED = [
    ("int32", b"\x08"),  # no value
    ("int32", b"\x08\x80"),
    ("int32", b"\x08" + b"\x80" * 10 + b"\x00"),
    ("int32", b"\x08\x01\x08\x01"),  # twice
    ("int32", b"\x0a\x01\x01"),  # another wire type
    ("int32", b"\x0d\x01\x00\x00\x00"),
    ("int32", b"\x0b\x0c"),  # a group
    ("int32", b"\x00\x01"),  # no field has the number 0
    ("int32", b"\x88\x80\x80\x80\x80\x00\x01"),  # a tag of six bytes
    ("int32", b"\x80\x80\x80\x80\x10\x01"),  # a tag of more than 32 bits
    ("string", b"\x0a\x02a"),
    ("string", b"\x0a\x81\x80\x80\x80\x80\x00a"),  # a length of six bytes
    ("string", b"\x0a\x01\xff"),
    ("double", b"\x09" + bytes(7)),
    ("In", b"\x0a\x01\x08"),
    ("In", b"\x0a\x03\x12\x01\xff"),  # text below that no column reads
    ("repeated string", b"\x0a\x01\xff"),
    ("repeated int32", b"\x0a\x01\x80"),
    (TIME, b"\x0a\x01\x08"),
    (DECIMAL, b"\x0a\x02\x0a\x01"),
]


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "not read"])
@pytest.mark.parametrize(("of", "message"), DAMAGED)
def test_a_damaged_field_makes_its_record_doubtful_and_no_other(of: str, message: bytes, is_read: bool) -> None:
    schema = schema_of(f"{of} a = 1; int32 z = 15;", more="message In { int32 x = 1; string y = 2; }")
    whole = field(15, 2)
    plans = [plan("integer", "z"), *([plan("jsonb", "a")] if is_read else [])]
    found = read(schema, [whole, whole + message, whole], *plans)
    assert found[0] == [2, "?", 2]
    assert all(column[1] == "?" for column in found)


def test_bytes_never_pass_from_one_record_to_its_neighbour() -> None:
    schema = schema_of("string a = 1; int64 b = 2;")
    whole = field(1, b"a") + field(2, 300) + field(1, b"bc") + field(2, 4)
    between_fields = {0: ["", "?"], 3: ["a", "?"], 6: ["a", "bc"], 10: ["?", ""], 12: ["?", ""]}
    for cut in range(len(whole) + 1):
        (texts,) = read(schema, [whole[:cut], whole[cut:]], plan("text", "a"))
        assert texts == between_fields.get(cut, ["?", texts[1]])


def test_fields_of_messages_are_found_by_path_and_missing_ones_are_null() -> None:
    schema = schema_of("In a = 1; int64 b = 2;", more="message In { int32 x = 1; optional string y = 2; }")
    messages = [field(1, field(1, 5) + field(2, b"q")), field(2, 7), field(1, b"")]
    plans = [plan("integer", "a", "x"), plan("text", "a", "y"), plan("bigint", "b"), plan("text", "c")]
    assert read(schema, messages, *plans, plan("jsonb", "a")) == [
        *([5, None, 0], ["q", None, None], [0, 7, 0], [None, None, None]),
        ['{"x":5,"y":"q"}', None, '{"x":0}'],
    ]


def test_a_record_with_two_members_of_a_oneof_is_doubtful() -> None:
    schema = schema_of("oneof o { int32 a = 1; int32 b = 2; }")
    messages = [field(1, 5), field(2, 6), field(1, 5) + field(2, 6)]
    assert read(schema, messages, plan("integer", "a"), plan("integer", "b")) == [[5, None, "?"], [None, 6, "?"]]


def test_a_record_without_a_required_field_is_doubtful() -> None:
    schema = schema_of("required int32 a = 1; optional int32 b = 2;", syntax="proto2")
    assert read(schema, [field(1, 5), field(2, 6)], plan("integer", "b")) == [[None, "?"]]


def test_a_record_of_another_message_type_is_doubtful() -> None:
    schema = schema_of("int32 a = 1;", more="message S { string b = 1; }")
    payloads = pa.array([b"\x00\x08\x05", b"\x02\x02\x0a\x01x", b"\x00\x08\x06", b""], pa.large_binary())
    columns = ProtobufColumns(schema).columns(payloads, [plan("integer", "a")])
    assert columns is not None
    assert (columns[0].array.to_pylist()[::2], columns[0].doubtful) == ([5, 6], [1, 3])


def test_the_message_type_is_the_one_that_the_first_record_names() -> None:
    schema = schema_of("int32 a = 1;", more="message S { string b = 1; }")
    payloads = pa.array([b"\x02\x02\x0a\x01x", b"\x02\x02"], pa.large_binary())
    columns = ProtobufColumns(schema).columns(payloads, [plan("text", "b")])
    assert columns is not None
    assert columns[0].array.to_pylist() == ["x", ""]


@pytest.mark.parametrize(
    ("fields", "more", "plans"),
    [
        ("int32 a = 1;", "", [plan("jsonb")]),
        ("int32 a = 1; int32 b = 2;", "", [plan("integer", "a", others=[("b",)])]),
        ("repeated In a = 1;", "message In { int32 x = 1; }", [plan("integer", "a", "x")]),
        ("int32 a = 1; map<string, int32> m = 2;", "", [plan("integer", "a")]),
        ("int32 a = 1; R r = 2;", "", [plan("integer", "a")]),
        ("int32 a = 1; google.protobuf.Duration d = 2;", "", [plan("integer", "a")]),
        ("int32 a = 1; google.protobuf.Any d = 2;", "", [plan("integer", "a")]),
        ("int32 a = 1; google.protobuf.NullValue d = 2;", "", [plan("integer", "a")]),
    ],
    ids=["the record", "two paths", "below a list", "a map", "itself", "a duration", "an any", "a null"],
)
def test_what_columns_cannot_tell_is_left_to_the_exact_way(fields: str, more: str, plans: list[ColumnPlan]) -> None:
    payloads = pa.array([b"\x00\x08\x01"], pa.large_binary())
    assert ProtobufColumns(schema_of(fields, more=more)).columns(payloads, plans) is None


def test_few_records_and_those_that_name_no_type_are_left_to_the_exact_way(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, plans = schema_of("int32 a = 1;"), [plan("integer", "a")]
    assert ProtobufColumns(schema).columns(pa.array([b"\x08"], pa.large_binary()), plans) is None
    monkeypatch.setattr(proto_columns, "FEWEST_RECORDS", 2)
    assert ProtobufColumns(schema).columns(pa.array([b"\x00"], pa.large_binary()), plans) is None
    assert ProtobufColumns(schema).columns(pa.array([b"\x00"] * 2, pa.large_binary()), plans) is not None


def test_a_default_is_for_a_field_that_the_type_lacks_and_not_yet_for_one_that_is_unset() -> None:
    schema = schema_of("optional int64 a = 1;")
    of_unset, of_nothing = (replace(plan("bigint", name), default="3") for name in ("a", "z"))
    assert read(schema, [b"", field(1, 5)], of_unset, of_nothing) == [[None, 5], [3, 3]]


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[int]:
    """Return a list that has an item for each call of a function from now on."""
    calls: list[int] = []
    original = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        calls.append(1)
        return original(*arguments)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_records_with_many_more_fields_than_the_others_take_no_step_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proto_leaves, "FEWEST_RECORDS", 2)
    steps = counted(monkeypatch, proto_leaves, "_step")
    schema = schema_of("repeated string a = 1; int32 z = 2;")
    (found,) = read(schema, [field(2, 5), field(1, b"") * 10_000], plan("integer", "z"))
    assert found == [5, "?"]
    assert len(steps) == 64


def test_types_that_share_types_are_made_once_and_read_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch, ProtobufColumns, "_made")
    looked_at = counted(monkeypatch, proto_columns, "fields_of")
    more = "".join(f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }}" for n in range(15)) + "message M15 {}"
    schema = schema_of("M0 a = 1; int32 z = 2;", more=more)
    inner = field(1, field(1, b""))
    assert read(schema, [field(2, 5), inner, b""], plan("integer", "z")) == [[5, 0, 0]]
    assert (len(made), len(looked_at)) == (17, 3)  # R and M0 to M15; R, one M0, one M1
