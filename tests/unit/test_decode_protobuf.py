"""What Protobuf records say. Most bytes are worked out by hand, from protobuf.dev/programming-guides/encoding."""

from __future__ import annotations

import base64
import io
import json
import os
import struct
import subprocess
import sys
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer, decimal_to_protobuf
from google.protobuf import timestamp_pb2, wrappers_pb2

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.kafka.registry import UnusableSchema
from spark_jobs.decode.protobuf import ProtobufSchema
from spark_jobs.decode.values import INFINITY_NUMBER, NAN_NUMBER, NEGATIVE_INFINITY_NUMBER, ColumnPlan, DecodeError
from tests.decoding import read_columns
from tests.protobuf_messages import document, fault, message_class, varint

MALFORMED, NOT_UTF8, OUT_OF_RANGE = DeadLetterReason.MALFORMED, DeadLetterReason.NOT_UTF8, DeadLetterReason.OUT_OF_RANGE
WRONG_TYPE = DeadLetterReason.WRONG_TYPE


@cache
def proto3(fields: str, *, imports: str = "", more: str = "") -> ProtobufSchema:
    return ProtobufSchema(
        f'syntax = "proto3"; package shop; {_imports(imports)} message Order {{ {fields} }} {more}', {}
    )


def proto2(fields: str, more: str = "") -> ProtobufSchema:
    return ProtobufSchema(f'syntax = "proto2"; package shop; message Order {{ {fields} }} {more}', {})


def _imports(names: str) -> str:
    return "".join(f'import "{name}.proto";' for name in names.split())


def sized(number: int, content: bytes) -> bytes:
    """A field of wire type 2."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def read(schema: ProtobufSchema, message: bytes) -> Any:
    return json.loads(document(schema, b"\0" + message))


# The two forms that schemas are registered in.


def test_a_descriptor_that_python_registers_in_base64_reads_like_its_text() -> None:
    shop = 'syntax = "proto3"; package shop; '
    common = f"{shop} message Item {{ int64 sku = 1; }}"
    imports = 'import "common.proto"; import "google/protobuf/timestamp.proto";'
    order = f"{shop} {imports} message Order {{ Item item = 1; google.protobuf.Timestamp at = 2; }}"
    file = message_class(order, "shop.Order", {"common.proto": common}).DESCRIPTOR.file
    as_text = ProtobufSchema(order, {"common.proto": common})
    as_python = ProtobufSchema(in_base64(file), {"common.proto": in_base64(file.dependencies[0])})
    mixed = ProtobufSchema(in_base64(file), {"common.proto": common})
    message = sized(1, b"\x08\x07") + sized(2, b"\x08\x00")
    for schema in (as_text, as_python, mixed):
        assert read(schema, message) == {"item": {"sku": 7}, "at": "1970-01-01T00:00:00Z"}


def in_base64(file: Any) -> str:
    return base64.b64encode(file.serialized_pb).decode()


@pytest.mark.parametrize("text", ["abcd", "YWJjZA==", "AAAA"])
def test_base64_of_something_else_is_no_schema(text: str) -> None:
    with pytest.raises(UnusableSchema):
        ProtobufSchema(text, {})


def test_a_descriptor_without_a_file_that_it_imports_is_no_schema() -> None:
    order = 'syntax = "proto3"; import "common.proto"; message Order { Item item = 1; }'
    common = 'syntax = "proto3"; message Item { int64 sku = 1; }'
    file = message_class(order, "Order", {"common.proto": common}).DESCRIPTOR.file
    with pytest.raises(UnusableSchema, match=r"common\.proto"):
        ProtobufSchema(in_base64(file), {})


# Scalars.


def test_every_scalar_type_is_written_with_its_exact_value() -> None:
    schema = proto3(
        "int32 a = 1; int64 b = 2; uint32 c = 3; uint64 d = 4; sint32 e = 5; sint64 f = 6; fixed32 g = 7;"
        " fixed64 h = 8; sfixed32 i = 9; sfixed64 j = 10; bool k = 11; string l = 12; bytes m = 13; double n = 14;"
    )
    minus_one = b"\xff" * 9 + b"\x01"  # a negative number is sign-extended to ten bytes
    message = (
        b"\x08" + minus_one + b"\x10" + b"\x80" * 9 + b"\x01"  # -2^63
        b"\x18\xff\xff\xff\xff\x0f\x20" + b"\xff" * 9 + b"\x01"  # 2^32 - 1, 2^64 - 1
        b"\x28\x01\x30\x03"  # zigzag: -1, -2
        b"\x3d\xff\xff\xff\xff\x41" + b"\xff" * 8 + b"\x4d\xfe\xff\xff\xff\x51" + b"\xfd" + b"\xff" * 7 + b"\x58\x01"
        b"\x62\x03\xe2\x82\xac\x6a\x02\x00\xff\x71" + struct.pack("<d", 0.1)
    )
    assert document(schema, b"\0" + message) == (
        b'{"a":-1,"b":-9223372036854775808,"c":4294967295,"d":18446744073709551615,"e":-1,"f":-2,"g":4294967295,'
        b'"h":18446744073709551615,"i":-2,"j":-3,"k":true,"l":"\xe2\x82\xac","m":"AP8=","n":0.1}'
    )


def test_names_are_those_of_the_proto() -> None:
    assert read(proto3('int32 order_id = 1 [json_name = "other"]; int32 lineNo = 2;'), b"\x08\x07") == {
        "order_id": 7,
        "lineNo": 0,
    }


def test_a_field_may_be_named_like_what_every_message_has() -> None:
    schema = proto3(
        "optional int32 HasField = 1; int32 FromString = 2; int32 __class__ = 3; string DESCRIPTOR = 4; int32 from = 5;"
        " message WhichOneof {} message SerializeToString {}"
    )
    expected = {"HasField": 1, "FromString": 2, "__class__": 3, "DESCRIPTOR": "d", "from": 5}
    assert read(schema, b"\x08\x01\x10\x02\x18\x03\x22\x01d\x28\x05") == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, b"0.10000000149011612"), (1.5, b"1.5"), (16777216.0, b"16777216.0"), (-0.0, b"-0.0")],
)
def test_a_float_fits_real_and_double_precision_with_its_exact_value(value: float, text: bytes) -> None:
    found = document(proto3("float f = 1;"), b"\0\x0d" + struct.pack("<f", value))
    assert found == b'{"f":' + text + b"}"
    single = struct.unpack("<f", struct.pack("<f", value))[0]
    plans = [ColumnPlan(name, parse_column_type(name), ("f",)) for name in ("real", "double precision")]
    (cells,) = read_columns(plans, found)
    assert cells == [single, single]


@pytest.mark.parametrize("type_name", ["float", "double", "google.protobuf.DoubleValue", "google.protobuf.Value"])
@pytest.mark.parametrize(
    ("value", "token"),
    [("nan", NAN_NUMBER), ("inf", INFINITY_NUMBER), ("-inf", NEGATIVE_INFINITY_NUMBER)],
)
def test_nan_and_infinity_are_tokens_that_name_no_finite_number(type_name: str, value: str, token: bytes) -> None:
    schema = proto3(f"{type_name} a = 1;", imports="google/protobuf/wrappers google/protobuf/struct")
    message = {
        "float": b"\x0d" + struct.pack("<f", float(value)),
        "double": b"\x09" + struct.pack("<d", float(value)),
        "google.protobuf.DoubleValue": sized(1, b"\x09" + struct.pack("<d", float(value))),
        "google.protobuf.Value": sized(1, b"\x11" + struct.pack("<d", float(value))),
    }[type_name]
    assert document(schema, b"\0" + message) == b'{"a":' + token + b"}"


def test_the_tokens_of_nan_and_infinity_are_no_number_of_any_other_column() -> None:
    for token in (NAN_NUMBER, INFINITY_NUMBER, NEGATIVE_INFINITY_NUMBER):
        for type_name in ("bigint", "numeric", "numeric(12,2)", "jsonb"):
            (outcome,) = read_columns([ColumnPlan("a", parse_column_type(type_name), ("a",))], b'{"a":' + token + b"}")
            assert isinstance(outcome, DecodeError)
            assert outcome.reason == OUT_OF_RANGE


def test_repeated_floats_with_nan_among_them_keep_their_places() -> None:
    packed = struct.pack("<3d", 1.0, float("nan"), 2.5)
    assert document(proto3("repeated double a = 1;"), b"\0" + sized(1, packed)) == b'{"a":[1.0,7e99999999,2.5]}'


# Presence.


def test_an_unset_field_with_presence_is_missing_and_one_without_has_its_zero() -> None:
    schema = proto3(
        "int32 a = 1; optional int32 b = 2; string c = 3; optional string d = 4; Order e = 5;"
        " oneof f { int32 g = 6; string h = 7; bool i = 8; } Kind j = 9; optional Kind k = 10; bytes l = 11;",
        more="enum Kind { NONE = 0; }",
    )
    zeros = {"a": 0, "c": "", "j": "NONE", "l": ""}
    assert read(schema, b"") == zeros
    assert read(schema, b"\x10\x00\x22\x00\x2a\x00\x3a\x00\x50\x00") == {
        **zeros, "b": 0, "d": "", "e": zeros, "h": "", "k": "NONE",
    }  # fmt: skip


def test_of_a_oneof_the_last_member_on_the_wire_counts() -> None:
    assert read(proto3("oneof f { int32 a = 1; string b = 2; }"), b"\x12\x01x\x08\x00") == {"a": 0}


def test_a_default_of_proto2_is_not_the_value_of_an_unset_field() -> None:
    schema = proto2(
        "optional int32 a = 1 [default = 7]; optional string b = 2 [default = 'é'];"
        " optional Kind c = 3 [default = TWO]; optional double d = 4 [default = nan];"
        " optional bytes e = 5 [default = '\\377'];",
        "enum Kind { ONE = 1; TWO = 2; }",
    )
    assert read(schema, b"") == {}
    assert read(schema, b"\x08\x00\x18\x01") == {"a": 0, "c": "ONE"}


def test_presence_of_an_edition_is_as_its_features_say() -> None:
    schema = ProtobufSchema(
        'edition = "2023"; message A { int32 a = 1; int32 b = 2 [features.field_presence = IMPLICIT];'
        " int32 c = 3 [features.field_presence = LEGACY_REQUIRED]; A d = 4 [features.message_encoding = DELIMITED];"
        " string e = 5 [features.utf8_validation = NONE]; repeated int32 f = 6 [features.repeated_field_encoding ="
        " EXPANDED]; }",
        {},
    )
    assert read(schema, b"\x18\x01") == {"b": 0, "c": 1, "f": []}
    assert read(schema, b"\x18\x01\x23\x18\x02\x24") == {"b": 0, "c": 1, "f": [], "d": {"b": 0, "c": 2, "f": []}}
    assert fault(schema, b"\0").reason == MALFORMED
    assert fault(schema, b"\0\x18\x01\x2a\x01\xff").reason == NOT_UTF8


def test_a_record_without_a_required_field_is_malformed() -> None:
    schema = proto2("optional Line line = 1;", "message Line { required int32 number = 1; }")
    assert read(schema, b"\x0a\x02\x08\x00") == {"line": {"number": 0}}
    assert read(schema, b"") == {}
    error = fault(schema, b"\0\x0a\x00")
    assert (error.reason, error.detail) == (
        MALFORMED,
        "expected the required field shop.Line.number, found nothing there",
    )


# Repeated fields, maps, messages, enums.


def test_repeated_fields_are_arrays_also_empty_ones_and_packed_or_not() -> None:
    schema = proto3("repeated int32 a = 1; repeated string b = 2; repeated Order c = 3; repeated bool d = 4;")
    empty: dict[str, Any] = {"a": [], "b": [], "c": [], "d": []}
    assert read(schema, b"") == empty
    message = b"\x0a\x02\x01\x02\x08\x03\x12\x01x\x12\x00\x1a\x00\x22\x02\x01\x00"
    assert read(schema, message) == {"a": [1, 2, 3], "b": ["x", ""], "c": [empty], "d": [True, False]}


def test_maps_are_objects_whose_keys_are_texts() -> None:
    schema = proto3(
        "map<string, int32> a = 1; map<bool, string> b = 2; map<sint64, Order> c = 3; map<uint64, bytes> d = 4;"
        " map<string, Kind> e = 5;",
        more="enum Kind { NONE = 0; SOME = 1; }",
    )
    empty: dict[str, Any] = {"a": {}, "b": {}, "c": {}, "d": {}, "e": {}}
    assert read(schema, b"") == empty
    message = (
        sized(1, b"\x0a\x01x\x10\x05") + sized(2, b"\x08\x01\x12\x01t") + sized(2, b"\x12\x01f")
        + sized(3, b"\x08\x03\x12\x00") + sized(4, b"\x08" + b"\xff" * 9 + b"\x01\x12\x01\xff")
        + sized(5, b"\x0a\x01k\x10\x01") + sized(5, b"\x0a\x01u\x10\x09")
    )  # fmt: skip
    assert read(schema, message) == {
        "a": {"x": 5}, "b": {"true": "t", "false": "f"}, "c": {"-2": empty}, "d": {"18446744073709551615": "/w=="},
        "e": {"k": "SOME", "u": 9},
    }  # fmt: skip


def test_a_map_may_have_any_name() -> None:
    schema = proto3("map<string, int32> _1 = 1; Inner inner = 2; message Inner { map<int32, Order> _1_ = 1; }")
    message = sized(1, b"\x0a\x01x\x10\x05") + sized(2, sized(1, b"\x08\x07\x12\x00"))
    assert read(schema, message) == {"_1": {"x": 5}, "inner": {"_1_": {"7": {"_1": {}}}}}


def test_of_a_repeated_map_key_the_last_entry_counts_and_missing_parts_are_zero() -> None:
    schema = proto3("map<string, int32> a = 1;")
    message = sized(1, b"\x0a\x01x\x10\x05") + sized(1, b"\x10\x07") + sized(1, b"\x0a\x01x")
    assert read(schema, message) == {"a": {"x": 0, "": 7}}


def test_a_message_that_comes_in_pieces_is_merged() -> None:
    schema = proto3("Line line = 1;", more="message Line { int32 a = 1; int32 b = 2; repeated int32 c = 3; }")
    message = sized(1, b"\x08\x01\x18\x05") + sized(1, b"\x10\x02\x18\x06")
    assert read(schema, message) == {"line": {"a": 1, "b": 2, "c": [5, 6]}}


def test_groups_are_messages_and_extensions_and_unknown_fields_are_ignored() -> None:
    schema = proto2(
        "repeated group Line = 1 { optional int32 a = 2; } extensions 100 to 200; optional int32 b = 3;",
        "extend Order { optional string note = 100; }",
    )
    known = b"\x0b\x10\x05\x0c" + b"\x18\x07"
    unknown = b"\xa2\x06\x01x" + b"\x50\x01" + b"\x59" + b"8bytes.." + b"\x63\x08\x01\x64" + b"\x6d4444"
    assert read(schema, known + unknown) == {"line": [{"a": 5}], "b": 7}


def test_a_field_of_another_wire_type_is_an_unknown_field() -> None:
    assert read(proto3("int32 a = 1; string b = 2;"), b"\x0a\x01x\x10\x05") == {"a": 0, "b": ""}


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_an_enum_is_its_first_name_and_an_unknown_number_stays_a_number_in_its_place(syntax: str) -> None:
    schema = ProtobufSchema(
        f'syntax = "{syntax}"; message A {{ optional Kind a = 1; repeated Kind b = 2; map<string, Kind> c = 3; '
        "enum Kind { option allow_alias = true; ZERO = 0; ONE = 1; UN = 1; MINUS = -1; } }",
        {},
    )
    minus_one = b"\xff" * 9 + b"\x01"
    message = b"\x08\x63\x10\x01\x10\x63\x10" + minus_one + sized(3, b"\x0a\x01k\x10\x63")
    assert read(schema, message) == {"a": 99, "b": ["ONE", 99, "MINUS"], "c": {"k": 99}}


def test_an_enum_of_another_file_has_its_names() -> None:
    text = 'syntax = "proto3"; import "common/kinds.proto"; message A { common.Kind a = 1; common.Outer.Kind b = 2; }'
    kinds = (
        'syntax = "proto3"; package common; enum Kind { K0 = 0; K1 = 1; }'
        " message Outer { enum Kind { O0 = 0; O1 = 1; } }"
    )
    assert read(ProtobufSchema(text, {"common/kinds.proto": kinds}), b"\x08\x01\x10\x01") == {"a": "K1", "b": "O1"}


# Well-known types.

IMPORTS = " ".join(
    f"google/protobuf/{name}"
    for name in ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers", "descriptor", "api")
)


def known(type_name: str, content: bytes) -> Any:
    schema = proto3(f"{type_name} a = 1;", imports=f"{IMPORTS} confluent/type/decimal google/type/money")
    return json.loads(document(schema, b"\0" + sized(1, content)))["a"]


def int64(number: int) -> bytes:
    return varint(number % 2**64)


@pytest.mark.parametrize(
    ("seconds", "nanos", "text"),
    [
        (0, 0, "1970-01-01T00:00:00Z"),
        (1769867100, 123456789, "2026-01-31T13:45:00.123456789Z"),
        (1769867100, 500000000, "2026-01-31T13:45:00.500Z"),
        (1769867100, 1000, "2026-01-31T13:45:00.000001Z"),
        (1769867100, 1, "2026-01-31T13:45:00.000000001Z"),
        (-1, 999999999, "1969-12-31T23:59:59.999999999Z"),
        (-62135596800, 0, "0001-01-01T00:00:00Z"),
        (253402300799, 999999999, "9999-12-31T23:59:59.999999999Z"),
        (-62135596801, 0, "-62135596801 s and 0 ns since 1970"),
        (253402300800, 5, "253402300800 s and 5 ns since 1970"),
        (5, 1000000000, "5 s and 1000000000 ns since 1970"),
        (5, -1, "5 s and -1 ns since 1970"),
        (-(2**63), 0, "-9223372036854775808 s and 0 ns since 1970"),
    ],
)
def test_a_timestamp_is_iso_8601_with_the_digits_that_it_needs(seconds: int, nanos: int, text: str) -> None:
    assert known("google.protobuf.Timestamp", b"\x08" + int64(seconds) + b"\x10" + int64(nanos)) == text


@pytest.mark.parametrize("seconds", [253402300800, -62135596801])
def test_a_timestamp_outside_the_years_1_to_9999_is_a_dead_letter_of_each_column_that_holds_times(seconds: int) -> None:
    schema = proto3("google.protobuf.Timestamp a = 1; int32 b = 2;", imports="google/protobuf/timestamp")
    found = document(schema, b"\0" + sized(1, b"\x08" + int64(seconds)) + b"\x10\x07")
    for type_name in ("timestamp with time zone", "timestamp", "date", "time"):
        (outcome,) = read_columns([ColumnPlan("a", parse_column_type(type_name), ("a",))], found)
        assert isinstance(outcome, DecodeError)
        assert outcome.reason == WRONG_TYPE
    (cells,) = read_columns([ColumnPlan("b", parse_column_type("integer"), ("b",))], found)
    assert cells == [7]


@pytest.mark.parametrize(
    ("seconds", "nanos", "text"),
    [
        (0, 0, "0s"),
        (1, 500000000, "1.500s"),
        (-1, -1, "-1.000000001s"),
        (0, -250000, "-0.000250s"),
        (315576000000, 0, "315576000000s"),
        (1, -1, "1 s and -1 ns"),
        (0, 1000000000, "0 s and 1000000000 ns"),
    ],
)
def test_a_duration_is_its_seconds(seconds: int, nanos: int, text: str) -> None:
    assert known("google.protobuf.Duration", b"\x08" + int64(seconds) + b"\x10" + int64(nanos)) == text


@pytest.mark.parametrize(
    ("type_name", "content", "value"),
    [
        ("Int64Value", b"\x08" + int64(-(2**63)), -(2**63)),
        ("UInt64Value", b"\x08" + int64(2**64 - 1), 2**64 - 1),
        ("Int32Value", b"", 0),
        ("BoolValue", b"\x08\x01", True),
        ("StringValue", b"\x0a\x02\xc3\xa9", "é"),
        ("BytesValue", b"\x0a\x02\x00\xff", "AP8="),
        ("FloatValue", b"\x0d" + struct.pack("<f", 0.1), 0.10000000149011612),
        ("DoubleValue", b"", 0.0),
        ("Empty", b"", {}),
        ("FieldMask", b"", ""),
        ("FieldMask", b"\x0a\x0border_lines\x0a\x07a.b_c.d", "orderLines,a.bC.d"),
        ("FieldMask", b"\x0a\x06fooBar\x0a\x02a_", ["fooBar", "a_"]),
        ("FieldMask", b"\x0a\x03a,b", ["a,b"]),
        ("Value", b"", None),
        ("Value", b"\x08\x00", None),
        ("Value", b"\x11" + struct.pack("<d", 5.0), 5),
        ("Value", b"\x1a\x01x", "x"),
        ("Value", b"\x20\x00", False),
        ("Value", b"\x2a\x00", {}),
        ("ListValue", b"\x0a\x02\x20\x01\x0a\x02\x32\x00\x0a\x00", [True, [], None]),
        ("Struct", b"\x0a\x07\x0a\x01k\x12\x02\x1a\x00\x0a\x03\x0a\x01n", {"k": "", "n": None}),
        ("NullValue", b"", None),
    ],
)
def test_a_well_known_type_is_as_protobufs_json_has_it(type_name: str, content: bytes, value: Any) -> None:
    if type_name == "NullValue":
        schema = proto3("google.protobuf.NullValue a = 1;", imports="google/protobuf/struct")
        assert document(schema, b"\0\x08\x00") == b'{"a":null}'
    else:
        found = known(f"google.protobuf.{type_name}", content)
        assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("number", "text"),
    [(1.5, b"1.5"), (-0.0, b"-0.0"), (9007199254740991.0, b"9007199254740991"), (1e300, b"1e300"), (0.0, b"0")],
)
def test_a_number_of_a_struct_keeps_its_exact_value(number: float, text: bytes) -> None:
    schema = proto3("google.protobuf.Value a = 1;", imports="google/protobuf/struct")
    assert document(schema, b"\0" + sized(1, b"\x11" + struct.pack("<d", number))) == b'{"a":' + text + b"}"


def test_an_unset_wrapper_is_missing_and_repeated_ones_are_their_values() -> None:
    schema = proto3(
        "google.protobuf.Int32Value a = 1; repeated google.protobuf.StringValue b = 2;",
        imports="google/protobuf/wrappers",
    )
    assert read(schema, b"") == {"b": []}
    assert read(schema, b"\x0a\x00\x12\x03\x0a\x01x\x12\x00") == {"a": 0, "b": ["x", ""]}


def test_a_type_of_ones_own_is_no_well_known_type_whatever_its_name() -> None:
    own = 'syntax = "proto3"; package google.protobuf; message Timestamp { string at = 1; }'
    message = "message A { google.protobuf.Timestamp a = 1; }"
    text = f'syntax = "proto3"; import "mine/timestamp.proto"; {message}'
    assert read(ProtobufSchema(text, {"mine/timestamp.proto": own}), sized(1, b"\x0a\x03now")) == {"a": {"at": "now"}}
    # The message of the schema itself is the second one.
    assert json.loads(document(ProtobufSchema(f"{own} {message}", {}), b"\x02\x02\x0a\x05\x0a\x03now")) == {
        "a": {"at": "now"}
    }


def any_of(name: str, content: bytes) -> bytes:
    return sized(1, f"type.googleapis.com/{name}".encode()) + sized(2, content)


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"", {}),
        (any_of("shop.Line", b"\x08\x05"), {"@type": "type.googleapis.com/shop.Line", "number": 5}),
        (
            any_of("google.protobuf.Timestamp", b"\x08\x01"),
            {"@type": "type.googleapis.com/google.protobuf.Timestamp", "value": "1970-01-01T00:00:01Z"},
        ),
        (any_of("google.protobuf.Empty", b""), {"@type": "type.googleapis.com/google.protobuf.Empty"}),
        (any_of("shop.Unknown", b"\x00\xff"), {"@type": "type.googleapis.com/shop.Unknown", "value": "AP8="}),
        (sized(2, b"\x01"), {"@type": "", "value": "AQ=="}),
        (
            any_of("google.protobuf.Any", any_of("shop.Line", b"")),
            {
                "@type": "type.googleapis.com/google.protobuf.Any",
                "value": {"@type": "type.googleapis.com/shop.Line", "number": 0},
            },
        ),
    ],
)
def test_an_any_is_its_message_where_the_schema_knows_the_type_else_its_bytes(content: bytes, value: Any) -> None:
    schema = proto3("google.protobuf.Any a = 1;", imports=IMPORTS, more="message Line { int32 number = 1; }")
    assert read(schema, sized(1, content)) == {"a": value}


def test_an_any_that_does_not_hold_what_it_says_is_malformed() -> None:
    schema = proto3("google.protobuf.Any a = 1;", imports=IMPORTS, more="message Line { int32 number = 1; }")
    error = fault(schema, b"\0" + sized(1, any_of("shop.Line", b"\x08")))
    assert (error.reason, error.detail) == (
        MALFORMED,
        r"expected a Protobuf message shop.Line, found 1 bytes that are none: \x08",
    )


def test_anys_in_one_another_without_end_are_malformed() -> None:
    schema = proto3("google.protobuf.Any a = 1;", imports=IMPORTS)
    content = b""
    for _ in range(2_000):
        content = any_of("google.protobuf.Any", content)
    assert fault(schema, b"\0" + sized(1, content)).reason == MALFORMED


@pytest.mark.parametrize(
    ("value", "scale", "text"),
    [
        (b"", 0, b"0"),
        (b"", 2, b"0.00"),
        (b"\x04\xd2", 2, b"12.34"),
        (b"\xfb\x2e", 2, b"-12.34"),
        (b"\x00\xff", 0, b"255"),
        (b"\xff", 0, b"-1"),
        (b"\x05", 3, b"0.005"),
        (b"\x96", 1, b"-10.6"),
        (b"\x07", -3, b"7e3"),
        (b"\x07", 2**31 - 1, b"7e-2147483647"),
        (b"\x07", -(2**31), b"7e2147483648"),
        (b"\x7f" + b"\xff" * 15, 4, b"17014118346046923173168730371588410.5727"),
    ],
)
def test_a_decimal_is_a_number_with_all_its_digits(value: bytes, scale: int, text: bytes) -> None:
    schema = proto3("confluent.type.Decimal a = 1;", imports="confluent/type/decimal")
    content = sized(1, value) + b"\x10\x05\x18" + int64(scale)
    assert document(schema, b"\0" + sized(1, content)) == b'{"a":' + text + b"}"


def test_a_decimal_that_confluents_own_library_writes_is_the_same_number() -> None:
    schema = proto3("confluent.type.Decimal a = 1;", imports="confluent/types/decimal")
    written = decimal_to_protobuf(Decimal("-123456789012345678901234567890.1230"), 4).SerializeToString()
    assert document(schema, b"\0" + sized(1, written)) == b'{"a":-123456789012345678901234567890.1230}'


def test_the_longest_decimal_that_numeric_holds_is_exact_and_a_longer_one_is_out_of_range() -> None:
    schema = proto3("confluent.type.Decimal a = 1;", imports="confluent/type/decimal")
    longest = 10**147_455 - 1  # 131,072 digits before the point and 16,383 behind it
    data = longest.to_bytes(61_230, "big", signed=True)
    found = document(schema, b"\0" + sized(1, sized(1, data) + b"\x18" + int64(16_383)))
    assert found == b'{"a":' + b"9" * 131_072 + b"." + b"9" * 16_383 + b"}"
    assert fault(schema, b"\0" + sized(1, sized(1, b"\0" + data))).reason == OUT_OF_RANGE


def test_other_common_types_are_messages() -> None:
    assert known("google.type.Money", b"\x0a\x03EUR\x10\x05\x18\x07") == {
        "currency_code": "EUR",
        "units": 5,
        "nanos": 7,
    }


# The message that the indexes name.

NESTED_TEXT = """
    syntax = "proto3"; package shop;
    message First { message A { message Deep { int32 deep = 1; } int32 a = 1; } message B { int32 b = 1; } }
    message Second { int32 second = 1; }
    message Third { map<string, string> m = 1; message One { int32 one = 1; } }
    message Fourth { map<string, string> m = 1; message One { int32 one = 1; } message Two { int32 two = 1; } }
"""


NESTED = ProtobufSchema(NESTED_TEXT, {})


@pytest.mark.parametrize(
    ("indexes", "value"),
    [
        (b"\x00", {}),
        (b"\x02\x00", {}),
        (b"\x80\x00", {}),
        (b"\x02\x02", {"second": 0}),
        (b"\x04\x00\x00", {"a": 0}),
        (b"\x04\x00\x02", {"b": 0}),
        (b"\x06\x00\x00\x00", {"deep": 0}),
        (b"\x04\x04\x00", {"one": 0}),  # as Java counts
        (b"\x04\x04\x02", {"one": 0}),  # with the map's entry before it, as Python counts
        (b"\x04\x06\x00", {"one": 0}),
        (b"\x04\x06\x04", {"two": 0}),
    ],
)
def test_the_indexes_name_the_message(indexes: bytes, value: Any) -> None:
    assert json.loads(document(NESTED, indexes)) == value


@pytest.mark.parametrize(
    ("payload", "detail"),
    [
        (b"", "expected message indexes as varints, found no bytes"),
        (b"\x80", r"expected message indexes as varints, found \x80"),
        (b"\x02\x80", r"expected message indexes as varints, found \x02\x80"),
        (b"\xff" * 12, "expected message indexes as varints, found " + r"\xff" * 12),
        (b"\x01", "expected a count of message indexes, and as many, found the count -1"),
        (b"\x02", "expected a count of message indexes, and as many, found the count 1"),
        (
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "expected a count of message indexes, and as many, found the count 9223372036854775807",
        ),
        (b"\x02\x08", "expected message indexes that name a message of the schema, found the index 4"),
        (b"\x02\x01", "expected message indexes that name a message of the schema, found the index -1"),
        (
            b"\x04\x00\x04",
            "expected message indexes that name a message of the schema, found the index 2 in shop.First",
        ),
        (
            b"\x06\x00\x02\x00",
            "expected message indexes that name a message of the schema, found the index 0 in shop.First.B",
        ),
    ],
)
def test_indexes_that_name_no_message_are_malformed(payload: bytes, detail: str) -> None:
    error = fault(NESTED, payload)
    assert error.reason == MALFORMED
    assert error.detail == detail


def test_an_index_that_two_ways_of_counting_read_as_two_messages_names_none() -> None:
    error = fault(NESTED, b"\x04\x06\x02")  # One with the map's entry, Two without
    assert "the index 1 in shop.Fourth" in error.detail


def test_a_schema_without_messages_reads_no_record() -> None:
    assert fault(ProtobufSchema('syntax = "proto3";', {}), b"\0").reason == MALFORMED


@pytest.mark.parametrize("indexes", [[0], [1], [0, 0], [0, 1], [0, 0, 0]])
def test_indexes_that_confluents_serializer_writes_are_read(indexes: list[int]) -> None:
    buffer = io.BytesIO()
    ProtobufSerializer._encode_varints(buffer, indexes)
    names = {(0,): [], (1,): ["second"], (0, 0): ["a"], (0, 1): ["b"], (0, 0, 0): ["deep"]}
    assert list(json.loads(document(NESTED, buffer.getvalue()))) == names[tuple(indexes)]


# Faults of records.


@pytest.mark.parametrize(
    "message",
    [
        b"\x08",  # a tag without its value
        b"\x08\xff",  # a varint that goes on
        b"\x08" + b"\xff" * 10 + b"\x01",  # a varint of eleven bytes
        b"\x12\x05abc",  # fewer bytes than said
        b"\x0c",  # the end of a group that has not begun
        b"\x0b\x08\x01",  # a group without end
        b"\x0f",  # wire type 7
        b"\x00\x00",  # field number 0
        b"\x08\x01\xff",  # a field, then garbage
        b"\x12\xff\xff\xff\xff\x0f",  # a length of 4 GB
    ],
)
def test_bytes_that_are_no_message_are_malformed(message: bytes) -> None:
    error = fault(proto3("int32 a = 1; string b = 2;"), b"\0" + message)
    assert error.reason == MALFORMED
    assert error.detail.startswith(
        f"expected a Protobuf message shop.Order, found {len(message)} bytes that are none: "
    )


def test_a_detail_quotes_no_more_than_the_beginning_of_a_record() -> None:
    error = fault(proto3("int32 a = 1;"), b"\0" + b"\xff" * 1_000_000)
    assert len(error.detail) < 200


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
@pytest.mark.parametrize(
    ("message", "where"),
    [
        (sized(1, b"a\xffb"), "0xff at position 1 in the field A.text"),
        (sized(2, b"ok") + sized(2, b"\xc0\x80"), "0xc0 at position 0 in the field A.texts"),
        (sized(3, b"\x0a\x01\xff"), "0xff at position 0 in the field A.by_key"),
        (sized(3, b"\x12\x01\xff"), "0xff at position 0 in the field A.by_key"),
        (sized(4, sized(1, b"\xed\xa0\x80")), "0xed at position 0 in the field A.text"),  # a surrogate
    ],
)
def test_text_that_is_not_utf_8_is_a_dead_letter_that_names_the_field(syntax: str, message: bytes, where: str) -> None:
    schema = ProtobufSchema(
        f'syntax = "{syntax}"; message A {{ optional string text = 1; repeated string texts = 2;'
        " map<string, string> by_key = 3; optional A inner = 4; }",
        {},
    )
    error = fault(schema, b"\0" + message)
    assert error.reason == NOT_UTF8
    assert error.detail == f"expected UTF-8, found byte {where}"


def test_nesting_deeper_than_protobufs_limit_is_malformed_and_less_is_read() -> None:
    schema = proto3("repeated Order a = 1;")

    def nested(levels: int) -> bytes:
        content = b""
        for _ in range(levels):
            content = sized(1, content)
        return content

    assert document(schema, b"\0" + nested(99)).count(b"[") == 100
    assert fault(schema, b"\0" + nested(101)).reason == MALFORMED
    assert fault(schema, b"\0" + nested(10_000)).reason == MALFORMED


def test_the_deepest_nesting_that_can_be_read_needs_no_more_stack_than_there_is() -> None:
    schema = proto3("repeated Order a = 1; google.protobuf.Any b = 2;", imports="google/protobuf/any")
    content = b""
    for _ in range(3):
        content = sized(2, any_of("shop.Order", content)) if content else b""
        for _ in range(98):
            content = sized(1, content)
    found = document(schema, b"\0" + content)
    assert found.count(b"@type") == 2


def test_large_records_are_read_whole() -> None:
    schema = proto3("string a = 1; repeated int32 b = 2;")
    text = "é" * 5_000_000
    assert json.loads(document(schema, b"\0" + sized(1, text.encode())))["a"] == text
    assert len(json.loads(document(schema, b"\0" + sized(2, b"\x01" * 1_000_000)))["b"]) == 1_000_000
    assert json.loads(document(schema, b"\0" + b"\x50\x01" * 1_000_000)) == {"a": "", "b": []}


def test_a_faulty_record_leaves_the_records_around_it_alone() -> None:
    first, second, third = proto3("int32 a = 1;").documents([b"\0\x08\x01", b"\0\x08", b"\0\x08\x03"])
    assert (first, third) == (b'{"a":1}', b'{"a":3}')
    assert isinstance(second, DecodeError)


# Schemas.


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('syntax = "proto3"; message A { int32 a = ; }', "schema.proto line 1, column 42: Expected field number."),
        ('syntax = "proto3"; import "gone.proto";', 'Import "gone.proto" was not found or had errors.'),
        ('syntax = "proto3"; message A { Missing a = 1; }', '"Missing" is not defined.'),
        ('syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }', "Field number 1 has already been used"),
        ('{"type": "record"}', "Expected top-level statement"),
        ('syntax = "proto9";', "Unrecognized syntax identifier"),
        ("\x00\x01\ud800", "Invalid control characters"),
    ],
)
def test_a_schema_that_does_not_compile_says_why(text: str, found: str) -> None:
    with pytest.raises(UnusableSchema) as error:
        ProtobufSchema(text, {})
    assert str(error.value).startswith("expected a Protobuf schema, found: ")
    assert found in str(error.value)


def test_a_schema_with_thousands_of_faults_names_a_few() -> None:
    with pytest.raises(UnusableSchema, match=r"; 5995 more$"):
        ProtobufSchema(
            'syntax = "proto3"; message A {' + "".join(f"X{n} a{n} = {n};" for n in range(1, 6001)) + "}", {}
        )


@pytest.mark.parametrize(
    "name", ["../../escaped.proto", "/escaped.proto", "a//b.proto", "a\\b.proto", "", "\ud800", "x" * 300]
)
def test_an_import_name_that_is_no_path_inside_the_schema_is_refused(name: str) -> None:
    with pytest.raises(UnusableSchema, match="expected the relative path of an imported file"):
        ProtobufSchema('syntax = "proto3";', {name: 'syntax = "proto3";'})


def test_a_name_that_is_a_file_and_a_folder_is_refused() -> None:
    with pytest.raises(UnusableSchema, match="expected a file or a folder"):
        ProtobufSchema('syntax = "proto3";', {"a": 'syntax = "proto3";', "a/b": 'syntax = "proto3";'})


def test_imports_are_found_by_their_names_also_of_one_another() -> None:
    references = {
        "a/lines.proto": 'syntax = "proto3"; package lines; import "b/money.proto";'
        " message Line { money.Amount amount = 1; }",
        "b/money.proto": 'syntax = "proto2"; package money; message Amount { optional int64 cents = 1; }',
        "schema.proto": 'syntax = "proto3"; message Other { int32 other = 1; }',
    }
    text = (
        'syntax = "proto3"; import "a/lines.proto"; import "schema.proto";'
        " message Order { lines.Line line = 1; Other other = 2; }"
    )
    schema = ProtobufSchema(text, references)
    assert read(schema, b"\x0a\x04\x0a\x02\x08\x05\x12\x00") == {
        "line": {"amount": {"cents": 5}},
        "other": {"other": 0},
    }


def test_confluents_own_imports_need_no_reference() -> None:
    text = """
        syntax = "proto3";
        import "confluent/meta.proto"; import "confluent/type/variant.proto";
        option (confluent.file_meta).doc = "orders";
        message Order {
          option (confluent.message_meta) = { params: [{ key: "k", value: "v" }] };
          int32 id = 1 [(confluent.field_meta) = { doc: "the id", tags: ["PII"], rules: [{ name: "r", expr: "e" }] }];
          confluent.type.Variant variant = 2;
        }"""
    assert read(ProtobufSchema(text, {}), b"\x08\x05\x12\x03\x0a\x01\x01") == {
        "id": 5,
        "variant": {"metadata": "AQ==", "value": ""},
    }


def test_two_schemas_may_have_one_name_with_other_types() -> None:
    assert read(proto3("int32 a = 1;"), b"\x08\x05") == {"a": 5}
    assert read(proto3("string a = 1;"), b"\x0a\x01x") == {"a": "x"}


def test_a_recursive_schema_and_one_of_2000_fields_are_read() -> None:
    schema = proto3("Order a = 1; map<string, Order> b = 2;")
    assert read(schema, sized(1, sized(2, b"\x0a\x01k"))) == {"a": {"b": {"k": {"b": {}}}}, "b": {}}
    wide = proto3("".join(f"int32 f{n} = {n};" for n in range(1, 2001)))
    assert read(wide, b"\x08\x05") == {f"f{n}": 5 if n == 1 else 0 for n in range(1, 2001)}


@pytest.mark.parametrize("first", [0, 2_000])
def test_a_schema_whose_messages_lead_on_through_2000_types_is_read(first: int) -> None:
    messages = [f"message M{n} {{ M{n + 1} next = 1; }}" for n in range(2_000)] + ["message M2000 {}"]
    text = 'syntax = "proto3";' + "".join(reversed(messages) if first else messages)
    schema = ProtobufSchema(text, {})
    expected: Any = {}
    content = b""
    for _ in range(90):
        content, expected = sized(1, content), {"next": expected}
    for start in (0, 460, 1_900):
        place = abs(first - start)
        index = b"\x02" + varint(2 * place)
        assert json.loads(document(schema, index + content)) == expected


def test_compiling_writes_nothing_and_a_text_without_syntax_is_proto2(capfd: pytest.CaptureFixture[str]) -> None:
    schema = ProtobufSchema(
        '\ufeff// syntax = "proto3";\n/* * */ import "unused.proto"; message A { required int32 a = 1; }',
        {"unused.proto": "message Unused {}"},
    )
    assert read(schema, b"\x08\x05") == {"a": 5}
    with pytest.raises(UnusableSchema):
        ProtobufSchema("message", {})
    assert capfd.readouterr() == ("", "")


def test_messages_that_google_protobuf_writes_are_read() -> None:
    text = """
        syntax = "proto3"; package shop;
        import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
        message Order {
          int64 id = 1; google.protobuf.Timestamp at = 2; google.protobuf.Int64Value large = 3;
          map<string, double> m = 4;
        }"""
    order = message_class(text, "shop.Order")(id=2**62, m={"x": 0.25})
    order.at.FromJsonString("2026-01-31T13:45:00.5Z")
    order.large.value = 7
    assert read(ProtobufSchema(text, {}), order.SerializeToString()) == {
        "id": 4611686018427387904,
        "at": "2026-01-31T13:45:00.500Z",
        "large": 7,
        "m": {"x": 0.25},
    }
    assert timestamp_pb2.Timestamp(seconds=1).SerializeToString() == b"\x08\x01"
    assert wrappers_pb2.Int64Value(value=7).SerializeToString() == b"\x08\x07"


def test_the_libraries_are_loaded_with_the_first_schema_only() -> None:
    code = (
        "import sys, spark_jobs.decode.protobuf as p; names = lambda: {n.partition('.')[0] for n in sys.modules};"
        " assert not {'grpc_tools', 'google'} & names(), names(); p.ProtobufSchema('syntax = \"proto3\";', {});"
        " assert {'grpc_tools', 'google'} <= names()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": os.pathsep.join(sys.path)})
