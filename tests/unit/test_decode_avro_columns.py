"""The quick way: which values it takes, hand-worked, and that it takes nothing else."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kafka_ingest.column_types import parse_column_type
from spark_jobs.decode import avro_columns
from spark_jobs.decode.avro import AvroSchema
from spark_jobs.decode.avro_columns import quick_columns
from spark_jobs.decode.leaf_columns import may_have_others
from spark_jobs.decode.paths import path_tree
from spark_jobs.decode.values import ColumnPlan, DecodeError
from tests.avro_encoding import long, sized


@pytest.fixture(autouse=True)
def few_records_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_columns, "FEWEST_RECORDS", 1)


def schema_of(*types: Any) -> AvroSchema:
    fields = [{"name": name, "type": of} for name, of in zip("abcdefgh", types, strict=False)]
    return AvroSchema(json.dumps({"type": "record", "name": "R", "fields": fields}))


def plan(type_name: str, *path: str, others: Sequence[tuple[str, ...]] = ()) -> ColumnPlan:
    return ColumnPlan("c", parse_column_type(type_name), path, other_paths=tuple(others))


def read(schema: AvroSchema, payloads: Sequence[bytes], *plans: ColumnPlan) -> list[list[Any]]:
    """Return the values of each column; "?" for a record in doubt."""
    columns = quick_columns(schema, payloads, plans)
    assert columns is not None
    return [
        ["?" if row in column.doubtful else value for row, value in enumerate(column.array.to_pylist())]
        for column in columns
    ]


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


DECIMAL = logical("bytes", "decimal", precision=20, scale=2)
SECOND = 1_769_867_100  # 2026-01-31T13:45:00Z
TAKEN = [
    ("boolean", "boolean", [b"\x00", b"\x01"], [False, True]),
    ("int", "smallint", [long(32_767), long(32_768), long(-32_769)], [32_767, "?", "?"]),
    ("int", "integer", [long(2**31 - 1), long(-(2**31)), long(2**31)], [2**31 - 1, -(2**31), "?"]),
    ("long", "bigint", [long(2**63 - 1), long(-(2**63)), long(300)], [2**63 - 1, -(2**63), 300]),
    ("long", "integer", [long(2**31), long(0)], ["?", 0]),
    ("long", "numeric", [long(-120)], ["-120"]),
    ("long", "numeric(3,1)", [long(99), long(100), long(-100)], ["99", "?", "?"]),
    ("long", "double precision", [long(2**52), long(2**60)], [2.0**52, "?"]),
    ("float", "real", [struct.pack("<f", 1.5), struct.pack("<f", float("nan"))], [1.5, "?"]),
    ("float", "double precision", [b"\xcd\xcc\xcc\x3d"], [0.100000001490116119384765625]),
    ("double", "double precision", [struct.pack("<d", 0.1), struct.pack("<d", float("inf"))], [0.1, "?"]),
    ("double", "real", [struct.pack("<d", 0.5)], [0.5]),
    ("string", "text", [sized("grün".encode()), sized(b""), sized(b"a\x00")], ["grün", "", "?"]),
    ("string", "varchar(2)", [sized(b"ab"), sized(b"abc")], ["ab", "?"]),
    ("string", "date", [sized(b"2026-01-31"), sized(b"soon")], ["2026-01-31", "?"]),
    ({"type": "enum", "name": "E", "symbols": ["x", "y"]}, "text", [b"\x02", b"\x00", b"\x01"], ["y", "x", "?"]),
    ("bytes", "bytea", [b"\x04\x00\xff"], [b"\x00\xff"]),
    ({"type": "fixed", "name": "F", "size": 2}, "bytea", [b"\x00\xff"], [b"\x00\xff"]),
    (DECIMAL, "numeric(6,2)", [b"\x04\x30\x39", b"\x02\xff", sized(b"\x10" * 7)], ["123.45", "-0.01", "?"]),
    (DECIMAL, "numeric", [sized(b"\x80" + bytes(7)), sized(bytes(9))], ["-92233720368547758.08", "?"]),
    (DECIMAL, "numeric(5,1)", [b"\x02\x7d", b"\x02\x78"], ["?", "?"]),
    (
        logical("bytes", "decimal", precision=20, scale=8),
        "numeric",
        [b"\x02\x01", b"\x02\x00"],
        ["0.00000001", "0.00000000"],
    ),
    (logical("int", "date"), "date", [long(20_484), long(2_932_897)], ["2026-01-31", "?"]),
    (logical("int", "time-millis"), "time", [long(49_500_123), long(86_400_000)], ["13:45:00.123", "?"]),
    (
        logical("long", "timestamp-millis"),
        "timestamptz",
        [long(SECOND * 1_000), long(2**63 - 1), long(-(2**63))],
        ["2026-01-31T13:45:00.000Z", "?", "?"],
    ),
    (logical("long", "timestamp-micros"), "timestamptz", [long(SECOND * 10**6 + 1)], ["2026-01-31T13:45:00.000001Z"]),
    (
        logical("long", "timestamp-nanos"),
        "timestamptz",
        [long(SECOND * 10**9 + 1_000), long(SECOND * 10**9 + 1)],
        ["2026-01-31T13:45:00.000001Z", "?"],
    ),
    (logical("long", "local-timestamp-millis"), "timestamp", [long(SECOND * 1_000)], ["2026-01-31T13:45:00.000"]),
    (logical("string", "uuid"), "uuid", [sized(b"0" * 32), sized(b"0")], ["0" * 32, "?"]),
    (
        {"type": "array", "items": "int"},
        "jsonb",
        [b"\x04\x02\x04\x00", b"\x00", b"\x03\x04\x02\x04\x00"],
        ["[1,2]", "[]", "[1,2]"],
    ),
    ({"type": "array", "items": "int"}, "jsonb", [long(20) + b"\x02" * 20 + b"\x00"], ["[" + ",".join("1" * 20) + "]"]),
    ({"type": "array", "items": "int"}, "jsonb", [b"\x02\x02\x02\x04\x00"], ["[1,2]"]),
    ({"type": "array", "items": ["null", "string"]}, "jsonb", [b"\x04\x00\x02\x02\x22\x00"], ['[null,"\\""]']),
    ("string", "jsonb", [b"\x02a", b'\x02"', b"\x02\\", b"\x02b"], ['"a"', '"\\""', '"\\\\"', '"b"']),
    (DECIMAL, "numeric(30,4)", [sized(b"\x10" * 7)], ["45212608023797.92"]),
    ({"type": "map", "values": "int"}, "jsonb", [b"\x02\x02k\x02\x00"], ['{"k":1}']),
    (["int", "string", "null"], "jsonb", [b"\x00\x02", b"\x02\x02a", b"\x04"], ["1", '"a"', None]),
]


@pytest.mark.parametrize(("of", "column", "payloads", "values"), TAKEN)
def test_values_are_taken_or_doubted(of: Any, column: str, payloads: list[bytes], values: list[Any]) -> None:
    assert read(schema_of(of), payloads, plan(column, "a")) == [values]


@pytest.mark.parametrize(("of", "column", "payloads", "values"), TAKEN[:-1])
def test_values_that_may_be_null_are_taken_or_doubted(
    of: Any, column: str, payloads: list[bytes], values: list[Any]
) -> None:
    several = [payload for each in payloads for payload in (b"\x02" + each, b"\x00")]
    expected = [value for each in values for value in (each, None)]
    assert read(schema_of(["null", of]), several, plan(column, "a")) == [expected]


INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}]}


def test_fields_of_records_are_found_by_path_and_missing_ones_are_null() -> None:
    schema = schema_of("string", ["null", INNER], "long")
    payloads = [b"\x02p\x02\x02\x02q\x04", b"\x02r\x00\x06"]
    plans = [plan("integer", "b", "x"), plan("text", "b", "y"), plan("bigint", "c"), plan("text", "d")]
    assert read(schema, payloads, *plans, plan("jsonb", "b")) == [
        *([1, None], ["q", None], [2, 3], [None, None]),
        ['{"x":1,"y":"q"}', None],
    ]


def test_a_default_is_for_a_field_that_the_schema_lacks_and_never_for_null() -> None:
    schema = schema_of(["null", "long"], "long")
    payloads = [b"\x00" + long(5), b"\x02" + long(7) + long(6), b"\x00" + long(8)]
    of_null, of_nothing = (replace(plan("bigint", name), default="3") for name in ("a", "z"))
    assert read(schema, payloads, of_null, of_nothing) == [[None, 7, None], [3, 3, 3]]
    assert read(schema, payloads[:1], of_null) == [[None]]


def test_the_first_path_that_the_schema_has_counts() -> None:
    schema = schema_of("int", ["null", INNER])
    payload = b"\x02\x02\x04\x00"
    assert read(schema, [payload], plan("integer", "new", others=[("a",)])) == [[1]]
    assert read(schema, [payload], plan("integer", "a", others=[("b", "x")])) == [[1]]
    assert read(schema, [payload], plan("integer", "old", others=[("b", "x")])) == [[2]]


@pytest.mark.parametrize(
    "plans",
    [
        [plan("jsonb")],
        [plan("integer", "b", "x", others=[("a",)])],
        [plan("integer", "a", "x")],
        [plan("integer", "c", "x")],
    ],
    ids=["the whole record", "a union on the first of two paths", "below a number", "below a map"],
)
def test_what_columns_cannot_tell_is_left_to_the_exact_way(plans: list[ColumnPlan]) -> None:
    schema = schema_of("int", ["null", INNER], {"type": "map", "values": "int"})
    assert quick_columns(schema, [b"\x02\x00\x00"], plans) is None
    assert quick_columns(AvroSchema('"int"'), [b"\x02"], [plan("integer", "a")]) is None


ORDER = schema_of("string", "long")


def test_bytes_never_pass_from_one_record_to_its_neighbour() -> None:
    # Together they are two records; cut elsewhere, neither is one.
    whole = b"\x02a\x04" + b"\x04bc\x06"
    for cut in range(len(whole) + 1):
        texts, numbers = read(ORDER, [whole[:cut], whole[cut:]], plan("text", "a"), plan("bigint", "b"))
        assert (texts, numbers) == ((["a", "bc"], [2, 3]) if cut == 3 else (["?", "?"], ["?", "?"]))


@pytest.mark.parametrize(
    ("of", "payload"),
    [
        ("int", b"\x02\x02"),
        ("int", b""),
        ("int", b"\x80"),
        ("int", b"\x80\x80\x80\x80\x10"),
        ("long", b"\xff" * 9 + b"\x02"),
        ("long", b"\x80" * 10 + b"\x00"),
        ("long", b"\x80" * 9),
        ("boolean", b"\x02"),
        ("double", b"\x00" * 7),
        ("string", b"\x04a"),
        ("string", b"\x01"),
        ("string", long(2**62)),
        ("string", long(-(2**63))),
        ("string", b"\x02\xff"),
        (DECIMAL, b"\x00"),
        (["null", "int"], b"\x04\x02"),
        (["null", "int"], b"\x04"),
        (["null", "int"], b"\x01\x02"),
        ({"type": "enum", "name": "E", "symbols": ["x"]}, b"\x02"),
        ({"type": "enum", "name": "E", "symbols": []}, b"\x00"),
        ({"type": "array", "items": "null"}, b"\x02\x00"),
        ({"type": "array", "items": "int"}, b"\x02\x02"),
        ({"type": "array", "items": "int"}, b"\x01\x06\x02\x00"),
        ({"type": "map", "values": "int"}, b"\x02\x02k"),
        (["int", "string", "null"], b"\x06"),
    ],
)
@pytest.mark.parametrize("is_read", [True, False], ids=["read", "not read"])
def test_a_damaged_field_makes_its_record_doubtful_and_no_other(of: Any, payload: bytes, is_read: bool) -> None:
    schema = schema_of("int", of)
    assert isinstance(schema.documents([b"\x02" + payload])[0], DecodeError)
    fits = {"int": b"\x02", "long": b"\x02", "boolean": b"\x01", "double": bytes(8)}.get(str(of), b"\x00")
    fits = b"\x02\x00" if of == DECIMAL else fits
    kind = of["type"] if isinstance(of, dict) else ""
    others = [] if kind == "enum" and not of["symbols"] else [b"\x04" + fits]
    if isinstance(of, list) and len(of) == 3:
        others = [b"\x04\x04"]
    plans = [plan("integer", "a"), *([plan("jsonb", "b")] if is_read else [])]
    found = read(schema, [*others, b"\x02" + payload, *others], *plans)
    assert found[0] == [2] * len(others) + ["?"] + [2] * len(others)
    assert all(column[len(others)] == "?" for column in found)


def test_a_list_of_records_is_read_as_deep_as_it_goes() -> None:
    schema = AvroSchema(
        '{"type":"record","name":"L","fields":[{"name":"a","type":"int"},{"name":"n","type":["null","L"]}]}'
    )
    deep = b"\x02\x02" * 511 + b"\x02\x00"
    assert read(schema, [deep, b"\x02\x02" + deep], plan("integer", "a")) == [[1, "?"]]


def passes(monkeypatch: pytest.MonkeyPatch, schema: AvroSchema, payloads: Sequence[bytes]) -> int:
    """Return how often a value of all records was read."""
    calls = []
    value = avro_columns._Walk._value

    def counted(*arguments: Any) -> None:
        calls.append(1)
        value(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(avro_columns._Walk, "_value", counted)
        assert read(schema, payloads, plan("integer", "a")) == [[1] * len(payloads)]
    return len(calls)


def test_long_arrays_take_no_pass_an_item_and_so_do_those_of_few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schema_of("int", {"type": "array", "items": "int"})
    long_one = b"\x02" + long(100_000) + b"\x02" * 100_000 + b"\x00"
    assert passes(monkeypatch, schema, [long_one]) == 3
    assert passes(monkeypatch, schema, [b"\x02\x04\x02\x02\x00"] * 2) == 5
    monkeypatch.setattr(avro_columns, "FEWEST_RECORDS", 2)
    assert passes(monkeypatch, schema, [b"\x02\x04\x02\x02\x00", b"\x02\x02\x02\x00"]) == 4


def test_records_are_read_behind_their_frames_and_none_in_another() -> None:
    framed = pa.array([b"\x00\x00\x00\x00\x07\x02", b"\x00\x00\x00\x00\x07", b"\x00\x00", b"\x00\x00\x00\x00\x07\x04"])
    columns = quick_columns(schema_of("int"), framed.cast(pa.large_binary()), [plan("integer", "a")], skip=5)
    assert columns is not None
    assert columns[0].doubtful == [1, 2]
    assert columns[0].array.to_pylist()[::3] == [1, 2]


def test_few_records_are_left_to_the_exact_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_columns, "FEWEST_RECORDS", 3)
    assert quick_columns(schema_of("int"), [b"\x02"] * 2, [plan("integer", "a")]) is None
    assert quick_columns(schema_of("int"), [b"\x02"] * 3, [plan("integer", "a")]) is not None
    assert quick_columns(schema_of("int"), [], [plan("integer", "a")]) is None


def record_of(**fields: object) -> object:
    """Write a record type; each has a name of its own."""
    return {
        "type": "record",
        "name": f"R{abs(hash(json.dumps(fields)))}",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


PART = record_of(c="long")


@pytest.mark.parametrize(
    ("schema", "others"),
    [
        (record_of(a="long", b=PART), False),
        (record_of(a="long", b=["null", PART]), False),
        (record_of(b=PART), False),
        (record_of(a=record_of(x="long"), b=PART), False),  # a column takes it whole
        (record_of(a="long", b=PART, d="long"), True),
        (record_of(a="long", b=record_of(c="long", d="long")), True),
        (record_of(a="long", b=["null", record_of(c="long", d="long")]), True),
        # Not sure: which keys a map has, and which branch a record, only the records say.
        (record_of(a="long", b={"type": "map", "values": "long"}), True),
        (record_of(a="long", b=["null", "long", PART]), True),
        (record_of(a="long", b="long"), True),
        ("long", True),
    ],
)
def test_a_schema_tells_whether_a_record_may_have_other_fields(schema: object, others: bool) -> None:
    assert may_have_others(AvroSchema(json.dumps(schema)).root, path_tree([("a",), ("b", "c")])) is others


def test_of_a_record_that_a_column_takes_whole_no_field_is_another() -> None:
    schema = AvroSchema(json.dumps(record_of(a="long", b=PART)))
    assert may_have_others(schema.root, path_tree([(), ("b", "d")])) is False
