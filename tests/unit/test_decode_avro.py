"""Bytes worked out by hand from Avro's specification, and the JSON that they are."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.kafka.registry import UnusableSchema
from spark_jobs.decode.avro import AvroSchema
from spark_jobs.decode.documents import MAX_NESTING
from spark_jobs.decode.values import INFINITY_NUMBER, NAN_NUMBER, NEGATIVE_INFINITY_NUMBER, DecodeError
from tests.avro_encoding import long, sized
from tests.growth import MOST_GROWTH, growth

MALFORMED = DeadLetterReason.MALFORMED


def read(schema: Any, data: bytes, *references: Any) -> str:
    (document,) = AvroSchema(json.dumps(schema), [json.dumps(each) for each in references]).documents([data])
    if isinstance(document, DecodeError):
        raise document
    return document.decode()


def refusal(schema: Any, data: bytes) -> tuple[DeadLetterReason, str]:
    with pytest.raises(DecodeError) as caught:
        read(schema, data)
    return caught.value.reason, caught.value.detail


def record(*types: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": of} for name, of in zip("abcdefgh", types, strict=False)]
    return {"type": "record", "name": "R", "fields": fields, **more}


LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
TREE = {"type": "record", "name": "T", "fields": [{"name": "of", "type": {"type": "array", "items": "T"}}]}
ENUM = {"type": "enum", "name": "E", "symbols": ["red", "blue"]}


def fixed(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size, **more}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def connect(kind: str, name: str, **parameters: str) -> dict[str, Any]:
    return {"type": kind, "connect.name": name, "connect.parameters": parameters}


@pytest.mark.parametrize(
    ("schema", "data", "document"),
    [
        ("null", b"", "null"),
        ("boolean", b"\x00", "false"),
        ("boolean", b"\x01", "true"),
        ("int", b"\x01", "-1"),
        ("int", b"\xff\xff\xff\xff\x0f", "-2147483648"),
        ("long", b"\x80\x01", "64"),
        ("long", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "9223372036854775807"),
        ("long", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "-9223372036854775808"),
        ("long", b"\x82\x80\x00", "1"),  # more bytes than it needs, with the same bits
        ("float", struct.pack("<f", 1.5), "1.5"),
        ("float", b"\xcd\xcc\xcc\x3d", "0.10000000149011612"),
        ("double", struct.pack("<d", 0.1), "0.1"),
        ("double", struct.pack("<d", -0.0), "-0.0"),
        ("double", struct.pack("<d", float("nan")), NAN_NUMBER.decode()),
        ("float", struct.pack("<f", float("inf")), INFINITY_NUMBER.decode()),
        ("double", struct.pack("<d", float("-inf")), NEGATIVE_INFINITY_NUMBER.decode()),
        ("string", b"\x06foo", '"foo"'),
        ("string", b"\x00", '""'),
        ("string", sized('"\\\u0000ü'.encode()), '"\\"\\\\\\u0000ü"'),
        ("bytes", b"\x06\x00\xff\x10", '"AP8Q"'),
        (fixed(2), b"\x00\xff", '"AP8="'),
        (fixed(0), b"", '""'),
        (ENUM, b"\x02", '"blue"'),
        ({"type": "array", "items": "long"}, b"\x04\x06\x36\x00", "[3,27]"),  # the specification's own example
        ({"type": "array", "items": "long"}, b"\x03\x04\x06\x36\x00", "[3,27]"),  # -2 items, in two bytes
        ({"type": "array", "items": "long"}, b"\x02\x06\x02\x36\x00", "[3,27]"),
        ({"type": "array", "items": "long"}, b"\x00", "[]"),
        ({"type": "array", "items": "null"}, b"\x00", "[]"),
        ({"type": "array", "items": ["null", "long"]}, b"\x04\x00\x02\x02\x00", "[null,1]"),
        ({"type": "array", "items": {"type": "array", "items": "int"}}, b"\x04\x00\x02\x02\x00\x00", "[[],[1]]"),
        ({"type": "map", "values": "int"}, b"\x04\x02a\x02\x02b\x04\x00", '{"a":1,"b":2}'),
        ({"type": "map", "values": "int"}, b"\x00", "{}"),
        ({"type": "map", "values": "null"}, b"\x02\x02a\x00", '{"a":null}'),
        (["null", "string"], b"\x02\x02a", '"a"'),
        (["string", "null"], b"\x02", "null"),
        (["int", "string", {"type": "array", "items": "int"}], b"\x04\x02\x02\x00", "[1]"),
        (record("long", "string"), b"\x36\x06foo", '{"a":27,"b":"foo"}'),
        (record(), b"", "{}"),
        (record(["null", "int"], {"type": "record", "name": "S", "fields": []}), b"\x00", '{"a":null,"b":{}}'),
        (record(["null", ENUM], "E"), b"\x02\x00\x02", '{"a":"red","b":"blue"}'),
        (record({"type": {"type": "string"}}), b"\x02x", '{"a":"x"}'),
        (LIST, b"\x02\x02\x00", '{"next":{"next":{"next":null}}}'),
        (TREE, b"\x04\x00\x00\x00", '{"of":[{"of":[]},{"of":[]}]}'),
    ],
)
def test_each_type_becomes_its_json(schema: Any, data: bytes, document: str) -> None:
    assert read(schema, data) == document


BYTES_DECIMAL = logical("bytes", "decimal", precision=6, scale=2)
VARIABLE = {
    "type": "record",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
BILLION = 1_000_000_000


@pytest.mark.parametrize(
    ("schema", "data", "document"),
    [
        (BYTES_DECIMAL, b"\x04\x30\x39", "123.45"),
        (BYTES_DECIMAL, b"\x02\xff", "-0.01"),
        (BYTES_DECIMAL, b"\x02\x00", "0.00"),
        (BYTES_DECIMAL, sized((10**30 + 1).to_bytes(13, "big")), "1" + "0" * 27 + "0.01"),  # beyond the precision
        (logical("bytes", "decimal", precision=3), b"\x02\x05", "5"),
        (fixed(3, logicalType="decimal", precision=6, scale=2), b"\xff\xcf\xc7", "-123.45"),
        (logical("int", "date"), long(20_484), '"2026-01-31"'),
        (logical("int", "date"), long(-1), '"1969-12-31"'),
        (logical("int", "date"), long(-719_162), '"0001-01-01"'),
        (logical("int", "date"), long(-719_163), '"+0000-12-31"'),
        (logical("int", "date"), long(2_932_896), '"9999-12-31"'),
        (logical("int", "date"), long(2_932_897), '"+10000-01-01"'),
        (logical("int", "time-millis"), long(49_500_123), '"13:45:00.123"'),
        (logical("long", "time-micros"), long(1), '"00:00:00.000001"'),
        (logical("long", "time-micros"), long(86_400 * 10**6), '"24:00:00.000000"'),
        (logical("int", "time-millis"), long(-1), '"-00:00:00.001"'),
        (logical("long", "timestamp-millis"), long(0), '"1970-01-01T00:00:00.000Z"'),
        (logical("long", "timestamp-millis"), long(-1), '"1969-12-31T23:59:59.999Z"'),
        (logical("long", "timestamp-micros"), long(1_769_867_100_000_001), '"2026-01-31T13:45:00.000001Z"'),
        (logical("long", "timestamp-nanos"), long(BILLION + 1), '"1970-01-01T00:00:01.000000001Z"'),
        (logical("long", "timestamp-nanos"), long(BILLION + 1_000), '"1970-01-01T00:00:01.000001Z"'),
        (logical("long", "timestamp-millis"), long(253_402_300_800_000), '"+10000-01-01T00:00:00.000Z"'),
        (logical("long", "timestamp-millis"), long(2**63 - 1), '"+292278994-08-17T07:12:55.807Z"'),
        (logical("long", "local-timestamp-millis"), long(1), '"1970-01-01T00:00:00.001"'),
        (logical("long", "local-timestamp-micros"), long(1), '"1970-01-01T00:00:00.000001"'),
        (logical("long", "local-timestamp-nanos"), long(1), '"1970-01-01T00:00:00.000000001"'),
        (logical("string", "uuid"), sized(b"not checked here"), '"not checked here"'),
        (fixed(16, logicalType="uuid"), bytes(range(16)), '"00010203-0405-0607-0809-0a0b0c0d0e0f"'),
        (
            fixed(12, logicalType="duration"),
            struct.pack("<III", 1, 2, 2**32 - 1),
            '{"months":1,"days":2,"millis":4294967295}',
        ),
    ],
)
def test_each_logical_type_becomes_what_it_means(schema: Any, data: bytes, document: str) -> None:
    assert read(schema, data) == document


@pytest.mark.parametrize(
    ("schema", "data", "document"),
    [
        (logical("int", "furlongs"), long(3), "3"),
        (logical("string", "date"), sized(b"x"), '"x"'),
        (logical("long", "date"), long(3), "3"),
        (logical("int", "timestamp-millis"), long(3), "3"),
        (logical("bytes", "decimal", precision=2, scale=3), b"\x02\x05", '"BQ=="'),
        (logical("bytes", "decimal", scale=1), b"\x02\x05", '"BQ=="'),
        (logical("bytes", "decimal", precision=True), b"\x02\x05", '"BQ=="'),
        (fixed(1, logicalType="decimal", precision=3), b"\x05", '"BQ=="'),  # a byte has two digits
        (fixed(1, logicalType="duration"), b"\x05", '"BQ=="'),
        (fixed(1, logicalType="uuid"), b"\x05", '"BQ=="'),
        ({"type": "int", "logicalType": ["date"], "connect.name": 1}, long(3), "3"),
    ],
)
def test_a_logical_type_that_does_not_fit_says_nothing(schema: Any, data: bytes, document: str) -> None:
    assert read(schema, data) == document


CONNECT, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."


@pytest.mark.parametrize(
    ("schema", "data", "document"),
    [
        (connect("bytes", CONNECT + "Decimal", scale="3"), b"\x02\x05", "0.005"),
        (connect("bytes", CONNECT + "Decimal", scale="-2"), b"\x02\x05", "5e2"),
        (connect("bytes", CONNECT + "Decimal"), b"\x02\x05", '"BQ=="'),
        (connect("bytes", CONNECT + "Decimal", scale="many"), b"\x02\x05", '"BQ=="'),
        (connect("int", CONNECT + "Date"), long(1), '"1970-01-02"'),
        (connect("int", CONNECT + "Time"), long(1), '"00:00:00.001"'),
        (connect("long", CONNECT + "Timestamp"), long(1), '"1970-01-01T00:00:00.001Z"'),
        (connect("int", TIME + "Date"), long(1), '"1970-01-02"'),
        (connect("int", TIME + "Time"), long(1), '"00:00:00.001"'),
        (connect("long", TIME + "MicroTime"), long(1), '"00:00:00.000001"'),
        (connect("long", TIME + "NanoTime"), long(1), '"00:00:00.000000001"'),
        (connect("long", TIME + "Timestamp"), long(1), '"1970-01-01T00:00:00.001"'),
        (connect("long", TIME + "MicroTimestamp"), long(1), '"1970-01-01T00:00:00.000001"'),
        (connect("long", TIME + "NanoTimestamp"), long(1), '"1970-01-01T00:00:00.000000001"'),
        (connect("string", TIME + "ZonedTime"), sized(b"06:30:00.5Z"), '"06:30:00.5Z"'),
        (connect("string", TIME + "ZonedTimestamp"), sized(b"2026-01-01T00:00:00Z"), '"2026-01-01T00:00:00Z"'),
        (connect("int", TIME + "Year"), long(2026), "2026"),
        (connect("long", TIME + "MicroDuration"), long(37_091_106_700_000), "37091106700000"),
        (connect("string", DATA + "Uuid"), sized(b"u"), '"u"'),
        (connect("string", DATA + "Json"), sized(b'{"a": 1}'), '"{\\"a\\": 1}"'),
        (connect("string", DATA + "Xml"), sized(b"<a/>"), '"<a/>"'),
        (connect("string", DATA + "Enum", allowed="sad,ok"), sized(b"ok"), '"ok"'),
        (connect("bytes", DATA + "Bits", length="8"), b"\x02\xa0", '"oA=="'),
        (VARIABLE, b"\x04\x04\x30\x39", "123.45"),
        (VARIABLE, b"\x03\x04\x30\x39", "12345e2"),
        (VARIABLE, long(2**31 - 1) + b"\x02\x05", "5e-2147483647"),
        (connect("string", TIME + "Date"), sized(b"x"), '"x"'),
    ],
)
def test_names_of_kafka_connect_and_debezium_mean_what_they_say(schema: Any, data: bytes, document: str) -> None:
    assert read(schema, data) == document


@pytest.mark.parametrize(
    ("schema", "data", "found"),
    [
        ("long", b"", "after 0 bytes"),
        ("long", b"\x80", "after 1 bytes"),
        ("boolean", b"", "after 0 bytes"),
        ("boolean", b"\x02", "the byte 02"),
        ("double", b"\x00" * 7, "after 7 bytes"),
        ("string", b"\x06fo", "after 3 bytes"),
        ("string", b"\x01", "the length -1"),
        ("bytes", long(2**60) + b"abc", "inside a value"),
        ("bytes", long(-(2**63)), "the length -9223372036854775808"),
        (fixed(4), b"abc", "after 3 bytes"),
        (fixed(12, logicalType="duration"), b"abc", "after 3 bytes"),
        ("long", b"\x02\x02", "1 bytes behind its end at byte 1"),
        ("null", b"\x00", "1 bytes behind"),
        ("int", b"\x80\x80\x80\x80\x10", "the int 2147483648"),
        ("long", b"\xff" * 9 + b"\x02", "more than 64 bits"),
        ("long", b"\x80" * 10 + b"\x00", "more than 64 bits"),
        (["null", "int"], b"\x04\x02", "branch 2 of a union of 2"),
        (["null", "int"], b"\x01", "branch -1"),
        (record(["null", "int"]), b"\x01", "branch -1"),
        (ENUM, b"\x04", "symbol 2"),
        (ENUM, b"\x01", "symbol -1"),
        ({"type": "array", "items": "long"}, b"\x04\x02", "inside a value"),
        ({"type": "array", "items": "long"}, b"\x02\x02", "inside a value"),
        ({"type": "array", "items": "long"}, b"\x01\x04\x02\x00", "a block that ends at byte 3 and says 4"),
        ({"type": "array", "items": "long"}, long(2**62) + b"\x02", "inside a value"),
        ({"type": "array", "items": "null"}, b"\x02\x00", "items that take no bytes"),
        ({"type": "array", "items": fixed(0)}, b"\x02\x00", "items that take no bytes"),
        ({"type": "array", "items": record("null")}, b"\x02\x00", "items that take no bytes"),
        ({"type": "map", "values": "null"}, long(2**62) + b"\x02a", "inside a value"),
        (BYTES_DECIMAL, b"\x00", "a decimal without a byte"),
        ({"type": "record", "name": "S", "fields": [{"name": "s", "type": "S"}]}, b"", "nesting deeper than 512"),
    ],
)
def test_bytes_that_are_no_record_are_malformed(schema: Any, data: bytes, found: str) -> None:
    reason, detail = refusal(schema, data)
    assert reason == MALFORMED
    assert found in detail


@pytest.mark.parametrize(
    "data", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"], ids=["no lead", "cut", "surrogate", "overlong"]
)
def test_a_string_that_is_not_utf8_is_told_as_such(data: bytes) -> None:
    assert refusal("string", sized(data))[0] == DeadLetterReason.NOT_UTF8
    assert (
        refusal({"type": "map", "values": "int"}, b"\x02" + sized(data) + b"\x02\x00")[0] == DeadLetterReason.NOT_UTF8
    )


def test_a_decimal_of_any_length_is_written_in_full_or_out_of_range() -> None:
    number = 7**20_000
    data = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    document = read(BYTES_DECIMAL, sized(data))
    assert len(document) > 16_900
    assert pow(7, 20_000, 10**20) == int(document.replace(".", "")[-20:])
    assert refusal(BYTES_DECIMAL, sized(b"\x01" * 61_231))[0] == DeadLetterReason.OUT_OF_RANGE


@pytest.mark.parametrize(("schema", "level"), [(LIST, b"\x02"), (TREE, b"\x02")])
def test_nesting_is_read_to_the_limit_and_refused_beyond(schema: Any, level: bytes) -> None:
    levels = MAX_NESTING if schema is LIST else MAX_NESTING // 2
    fits = level * (levels - 1) + b"\x00" * (1 if schema is LIST else levels)
    document = read(schema, fits)
    assert document.count("{") + document.count("[") == MAX_NESTING
    for deeper in (level * levels + b"\x00" * levels, level * 1_000_000):
        assert "nesting deeper than 512" in refusal(schema, deeper)[1]


def test_a_record_of_two_thousand_fields_is_read() -> None:
    fields = [{"name": f"f{number}", "type": ["null", "int"]} for number in range(2_000)]
    schema = {"type": "record", "name": "Wide", "fields": fields}
    found = json.loads(read(schema, b"\x02\x0a\x00" * 1_000))
    assert len(found) == 2_000
    assert (found["f0"], found["f1"], found["f1998"], found["f1999"]) == (5, None, 5, None)


def test_one_bad_record_leaves_the_others() -> None:
    first, second, third = AvroSchema('"int"').documents([b"\x02", b"", b"\x04"])
    assert (first, third) == (b"1", b"2")
    assert isinstance(second, DecodeError)


def test_time_grows_with_the_bytes_only() -> None:
    of_bytes = {"type": "array", "items": {"type": "array", "items": "null"}}
    assert read(of_bytes, long(100_000) + b"\x00" * 100_001) == "[" + ",".join(["[]"] * 100_000) + "]"
    assert refusal(of_bytes, long(100_000) + long(2**40) * 10_000)[0] == MALFORMED
    assert refusal({"type": "array", "items": "null"}, long(2**62) + b"\x00")[0] == MALFORMED
    documents = AvroSchema(json.dumps(of_bytes)).documents
    assert growth(lambda payload: documents([payload]), lambda size: long(size) + b"\x00" * (size + 1)) < MOST_GROWTH
    assert (
        growth(lambda payload: documents([payload]), lambda size: long(size) + long(2**40) * (size // 6)) < MOST_GROWTH
    )


NAMED = {"type": "record", "name": "Inner", "namespace": "com.example", "fields": [{"name": "x", "type": "int"}]}


@pytest.mark.parametrize(
    ("schema", "references"),
    [
        (record("com.example.Inner"), [NAMED]),
        (record("Inner", namespace="com.example"), [NAMED]),
        (record("Outer"), [NAMED, {"type": "record", "name": "Outer", "fields": [{"name": "x", "type": "int"}]}]),
        (record({**NAMED, "name": "other.Inner"}, namespace="com.example"), []),
        (record({"type": "record", "name": "Inner$", "fields": [{"name": "x", "type": "int"}]}), []),
    ],
)
def test_names_are_found_in_their_namespace_and_in_referenced_schemas(schema: Any, references: list[Any]) -> None:
    assert read(schema, b"\x02", *references) == '{"a":{"x":1}}'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "in JSON"),
        ("{", "in JSON"),
        ('"strin"', "strin"),
        ("3", "an Avro type"),
        ("null", "an Avro type"),
        ('{"type": 3}', "an Avro type"),
        ('{"fields": []}', "an Avro type"),
        ('{"type": "record", "fields": []}', "a name"),
        ('{"type": "record", "name": "R"}', "a list of fields"),
        ('{"type": "record", "name": "R", "fields": [3]}', "a list of fields"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "com.S"}]}', "com.S"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "an Avro type"),
        (json.dumps(record("int", {"type": "fixed", "name": "R", "size": 1})), "defined once"),
        (json.dumps(record("int", fields=[{"name": "a", "type": "int"}] * 2)), "different names"),
        ('{"type": "enum", "name": "E"}', "a list of symbols"),
        ('{"type": "enum", "name": "E", "symbols": [1]}', "a list of symbols"),
        ('{"type": "fixed", "name": "F", "size": -1}', "0 bytes or more"),
        ('{"type": "fixed", "name": "F", "size": true}', "0 bytes or more"),
        ('{"type": "fixed", "name": "F", "size": 2147483648}', "0 bytes or more"),
        ('{"type": "fixed", "name": "F"}', "0 bytes or more"),
        ('{"type": "array"}', "an Avro type"),
        ('{"type": "map"}', "an Avro type"),
        ("[]", "a union"),
        ('["int", ["string"]]', "a union"),
        ("[" * 100_000, "nested"),
        ('{"type": "array", "items": ' * 600 + '"int"' + "}" * 600, "nested"),
    ],
)
def test_a_schema_that_is_none_is_refused_with_what_is_wrong(text: str, found: str) -> None:
    with pytest.raises(UnusableSchema, match=found):
        AvroSchema(text)
    with pytest.raises(UnusableSchema, match=found):
        AvroSchema(text, ['"int"'])
