"""Drawn schemas and messages: what google.protobuf writes is what its own JSON says, but for what is exact here."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer, _create_index_array
from google.protobuf.message import DecodeError as ParseError
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.decode.protobuf import ProtobufSchema
from spark_jobs.decode.values import INFINITY_NUMBER, NAN_NUMBER, NEGATIVE_INFINITY_NUMBER, DecodeError
from tests.drawn_protobuf import Schema, expected_document, written
from tests.growth import MOST_GROWTH, growth
from tests.protobuf_messages import document, message_class

SPECIAL = {
    NAN_NUMBER.decode(): "NaN",
    INFINITY_NUMBER.decode(): "Infinity",
    NEGATIVE_INFINITY_NUMBER.decode(): "-Infinity",
}


def found_document(schema: ProtobufSchema, message: bytes) -> Any:
    def number(text: str) -> Any:
        return SPECIAL.get(text) or float(text)

    return json.loads(document(schema, b"\0" + message), parse_float=number)


@settings(max_examples=60)
@given(written("proto2", "proto3"))
def test_a_drawn_message_is_what_google_protobufs_json_says(drawn: tuple[Schema, Any]) -> None:
    schema, message = drawn
    found = found_document(ProtobufSchema(schema.text, {}), message.SerializeToString())
    assert found == expected_document(message)


@settings(max_examples=40)
@given(written("proto3"), st.data())
def test_bytes_are_read_exactly_where_google_protobuf_reads_them(
    drawn: tuple[Schema, Any], data: st.DataObject
) -> None:
    schema, message = drawn
    changed = bytearray(message.SerializeToString())
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(changed)))
        changed[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    try:
        type(message).FromString(bytes(changed))
    except ParseError:
        is_message = False
    else:
        is_message = True
    (found,) = ProtobufSchema(schema.text, {}).documents([b"\0" + changed])
    assert isinstance(found, bytes) is is_message


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_whatever_the_bytes_are_each_payload_has_a_document_or_a_fault(payloads: list[bytes]) -> None:
    found = FIXED.documents(payloads)
    assert len(found) == len(payloads)
    for outcome in found:
        if isinstance(outcome, DecodeError):
            assert outcome.detail.startswith("expected ")
        else:
            json.loads(outcome)


FIXED = ProtobufSchema(
    'syntax = "proto3"; import "google/protobuf/any.proto"; import "google/protobuf/struct.proto";'
    " message A { google.protobuf.Any a = 1; google.protobuf.Value b = 2; repeated A c = 3; string d = 4; }"
    " message C { repeated double a = 1; map<string, A> b = 2; }",
    {},
)

trees: st.SearchStrategy[list[Any]] = st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=3), max_leaves=8)


@given(st.lists(trees, min_size=1, max_size=3))
def test_the_indexes_that_confluents_library_gives_a_message_name_it(tree: list[Any]) -> None:
    names: list[str] = []

    def text(messages: list[Any], outer: str) -> str:
        written = []
        for inner in messages:
            number = len(names)
            names.append(f"{outer}M{number}")
            written.append(f"message M{number} {{ int32 f{number} = 1; {text(inner, f'{outer}M{number}.')} }}")
        return " ".join(written)

    schema_text = f'syntax = "proto3"; {text(tree, "")}'
    schema = ProtobufSchema(schema_text, {})
    first = message_class(schema_text, "M0").DESCRIPTOR
    for number, name in enumerate(names):
        buffer = io.BytesIO()
        indexes = _create_index_array(first.file.pool.FindMessageTypeByName(name))
        ProtobufSerializer._encode_varints(buffer, indexes)
        assert document(schema, buffer.getvalue()) == b'{"f%d":0}' % number


# What one record costs, whatever it holds.

HOSTILE_SCHEMA = ProtobufSchema(
    'syntax = "proto3"; import "google/protobuf/any.proto"; import "google/protobuf/field_mask.proto";'
    'import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto";'
    'import "confluent/type/decimal.proto";'
    " message A { repeated int32 numbers = 1; string text = 2; repeated A many = 3; map<string, A> by_key = 4;"
    " A one = 5; google.protobuf.Any any = 6; confluent.type.Decimal decimal = 7;"
    " repeated confluent.type.Decimal decimals = 8;"
    " google.protobuf.FieldMask mask = 9; google.protobuf.ListValue list = 10;"
    " repeated google.protobuf.Timestamp times = 11; oneof o { A left = 12; string right = 13; } }",
    {},
)


def _varint(number: int) -> bytes:
    return bytes([*(number >> 7 * place & 0x7F | 0x80 for place in range(4)), number >> 28])


def _sized(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _anys(size: int) -> bytes:
    content = b""
    while len(content) < size:
        content = _sized(1, b"/google.protobuf.Any") + _sized(2, content)
    return _sized(6, content)


def _deep(size: int) -> bytes:
    heads: list[bytes] = []
    length = 0
    while length < size:
        heads.append(b"\x2a" + _varint(length))
        length += len(heads[-1])
    return b"".join(reversed(heads))


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "packed numbers": lambda size: _sized(1, b"\x01" * size),
    "numbers": lambda size: b"\x08\x01" * (size // 2),
    "unknown fields": lambda size: b"\x78\x01" * (size // 2),
    "text": lambda size: _sized(2, b"x" * size),
    "text that is not UTF-8 at its end": lambda size: _sized(2, b"x" * size + b"\xff"),
    "one text again and again": lambda size: b"\x12\x01x" * (size // 3),
    "empty messages": lambda size: b"\x1a\x00" * (size // 2),
    "one message in pieces": lambda size: b"\x2a\x02\x08\x01" * (size // 4),
    "members of a oneof in turn": lambda size: b"\x62\x00\x6a\x01x" * (size // 5),
    "map entries": lambda size: b"".join(b"\x22\x08\x0a\x06%06d" % number for number in range(size // 10)),
    "one map entry again and again": lambda size: b"\x22\x03\x0a\x01x" * (size // 5),
    "deep messages": _deep,
    "anys in anys": _anys,
    "an any with a long name": lambda size: _sized(6, _sized(1, b"/" + b"a." * (size // 2))),
    "a long decimal": lambda size: _sized(7, _sized(1, b"\x7f" * min(size, 61_000))),
    "a decimal that is too long": lambda size: _sized(7, _sized(1, b"\x7f" * size)),
    "decimals with a large scale": lambda size: b"\x42\x05\x0a\x01\x07\x18\x7f" * (size // 7),
    "a path of underscores": lambda size: _sized(9, _sized(1, b"_" * size)),
    "a long path": lambda size: _sized(9, _sized(1, b"a_b" * (size // 3))),
    "list values": lambda size: _sized(10, b"\x0a\x02\x20\x01" * (size // 4)),
    "times": lambda size: b"".join(b"\x5a\x06\x08" + _varint(number * 97) for number in range(size // 8)),
    "garbage": lambda size: b"\xff" * size,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_time_grows_no_more_than_the_record(what: str) -> None:
    def read(payload: bytes) -> object:
        return HOSTILE_SCHEMA.documents([payload])

    assert growth(read, lambda size: b"\0" + HOSTILE[what](size)) < MOST_GROWTH


@pytest.mark.parametrize("indexes", [b"\xff" * 1_000_000, b"\x80" * 1_000_000, b"\xfe\x87\x3d" + b"\x00" * 1_000_000])
def test_a_million_bytes_of_indexes_are_refused(indexes: bytes) -> None:
    (found,) = HOSTILE_SCHEMA.documents([indexes])
    assert isinstance(found, DecodeError)
    assert len(found.detail) < 200
