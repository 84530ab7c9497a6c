"""Protobuf schemas and messages as hypothesis draws them, with the document that google.protobuf's own JSON gives."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from hypothesis import strategies as st

from tests.protobuf_messages import message_class

INT32, UINT32 = st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**32 - 1)
INT64, UINT64 = st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "int32": INT32, "sint32": INT32, "sfixed32": INT32, "uint32": UINT32, "fixed32": UINT32,
    "int64": INT64, "sint64": INT64, "sfixed64": INT64, "uint64": UINT64, "fixed64": UINT64,
    "bool": st.booleans(), "string": st.text(max_size=5), "bytes": st.binary(max_size=5),
    "float": st.floats(width=32), "double": st.floats(),
}  # fmt: skip
KEYS = [name for name in SCALARS if name not in ("bytes", "float", "double")]
#: Numbers of the enum Kind; proto3 keeps others, too.
KINDS = {"proto2": st.sampled_from([0, 1, -5]), "proto3": st.sampled_from([0, 1, -5, 77])}
WRAPPERS = {
    "BoolValue": "bool", "BytesValue": "bytes", "DoubleValue": "double", "FloatValue": "float", "Int32Value": "int32",
    "Int64Value": "int64", "StringValue": "string", "UInt32Value": "uint32", "UInt64Value": "uint64",
}  # fmt: skip
WELL_KNOWN = ["Timestamp", "Duration", "FieldMask", "Empty", "Struct", "Value", "ListValue", *WRAPPERS]
IMPORTS = "".join(
    f'import "google/protobuf/{name}.proto";'
    for name in ("timestamp", "duration", "field_mask", "empty", "struct", "wrappers")
)
TYPES = [*SCALARS, "Kind", "Inner", "Outer", *(f"google.protobuf.{name}" for name in WELL_KNOWN)]
STRUCT_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=5,
)
STRUCTS: dict[str, st.SearchStrategy[Any]] = {
    "Struct": st.dictionaries(st.text(max_size=3), STRUCT_VALUES, max_size=3),
    "ListValue": st.lists(STRUCT_VALUES, max_size=3),
    "Value": STRUCT_VALUES,
}


@dataclass(frozen=True)
class Field:
    label: str
    type: str
    key: str
    name: str
    number: int

    def __str__(self) -> str:
        if self.label == "map":
            return f"map<{self.key}, {self.type}> {self.name} = {self.number};"
        if self.label == "oneof":
            other = f"int32 x{self.number} = {self.number + 30_000};"  # far from all that tests draw or add
            return f"oneof o{self.number} {{ {self.type} {self.name} = {self.number}; {other} }}"
        return f"{self.label} {self.type} {self.name} = {self.number};"


@dataclass(frozen=True)
class Schema:
    syntax: str
    messages: dict[str, list[Field]]

    @property
    def text(self) -> str:
        messages = "".join(f"message {name} {{ {' '.join(map(str, of))} }}" for name, of in self.messages.items())
        kind = "enum Kind { ZERO = 0; ONE = 1; MINUS_FIVE = -5; }"
        return f'syntax = "{self.syntax}"; package drawn; {IMPORTS} {messages} {kind} message Uses {{ {_uses()} }}'


def _uses() -> str:
    """Keep the compiler from warning about imports that the drawn fields do not use."""
    return "".join(f"optional google.protobuf.{name} f{n} = {n};" for n, name in enumerate(WELL_KNOWN, 1))


def drawn_schema(draw: st.DrawFn, syntax: str) -> Schema:
    labels = ["optional", "repeated", "map", "oneof", "required" if syntax == "proto2" else ""]
    messages = {}
    for message in ("Outer", "Inner"):
        count = draw(st.integers(0, 6))
        numbers = draw(st.lists(st.integers(1, 900), min_size=count, max_size=count, unique=True))
        messages[message] = [_field(draw, number, labels) for number in numbers]
    return Schema(syntax, messages)


def _field(draw: st.DrawFn, number: int, labels: list[str]) -> Field:
    label, type_name = draw(st.sampled_from(labels)), draw(st.sampled_from(TYPES))
    if label == "required" and type_name in ("Inner", "Outer"):
        label = "optional"  # a message may require itself without end
    style = draw(st.sampled_from(["name_{}", "camelCase{}", "UPPER_{}", "_x{}_"]))
    return Field(label, type_name, draw(st.sampled_from(KEYS)), style.format(number), number)


class Writer:
    """Fills messages with drawn values."""

    def __init__(self, draw: st.DrawFn, schema: Schema) -> None:
        self._draw = draw
        self._schema = schema

    def fill(self, message: Any, name: str, depth: int = 0) -> None:
        for field in self._schema.messages[name]:
            if depth == 3 and field.type in self._schema.messages:
                continue
            if field.label == "map":
                for key in self._draw(st.lists(SCALARS[field.key], max_size=3)):
                    self._put_in_map(getattr(message, field.name), key, field.type, depth)
            elif field.label == "repeated":
                for _ in range(self._draw(st.integers(0, 3))):
                    self._append(getattr(message, field.name), field.type, depth)
            elif field.label == "required" or self._draw(st.booleans()):
                self._set(message, field, depth)

    def _set(self, message: Any, field: Field, depth: int) -> None:
        if self._is_message(field.type):
            getattr(message, field.name).SetInParent()
            self._fill(getattr(message, field.name), field.type, depth)
        else:
            setattr(message, field.name, self._scalar(field.type))

    def _append(self, repeated: Any, type_name: str, depth: int) -> None:
        if self._is_message(type_name):
            self._fill(repeated.add(), type_name, depth)
        else:
            repeated.append(self._scalar(type_name))

    def _put_in_map(self, mapping: Any, key: Any, type_name: str, depth: int) -> None:
        if self._is_message(type_name):
            self._fill(mapping[key], type_name, depth)
        else:
            mapping[key] = self._scalar(type_name)

    def _is_message(self, type_name: str) -> bool:
        return type_name not in SCALARS and type_name != "Kind"

    def _scalar(self, type_name: str) -> Any:
        return self._draw(KINDS[self._schema.syntax] if type_name == "Kind" else SCALARS[type_name])

    def _fill(self, message: Any, type_name: str, depth: int) -> None:
        name = type_name.removeprefix("google.protobuf.")
        if name in WRAPPERS:
            message.value = self._draw(SCALARS[WRAPPERS[name]])
        elif name == "Timestamp":
            message.seconds = self._draw(st.integers(-62_135_596_800, 253_402_300_799))
            message.nanos = self._draw(_nanos())
        elif name == "Duration":
            message.seconds = self._draw(st.integers(-315_576_000_000, 315_576_000_000))
            message.nanos = self._draw(_nanos()) * (-1 if message.seconds < 0 else 1)
        elif name == "FieldMask":
            message.paths.extend(
                self._draw(st.lists(st.from_regex(r"[a-z]{1,3}(_[a-z]){0,2}(\.[a-z])?", fullmatch=True)))
            )
        elif name in ("Struct", "Value", "ListValue"):
            json_format.ParseDict(self._draw(STRUCTS[name]), message)
        elif name != "Empty":
            self.fill(message, name, depth + 1)


def _nanos() -> st.SearchStrategy[int]:
    return st.one_of(
        st.integers(0, 999_999_999),
        st.integers(0, 999).map(lambda n: n * 1_000_000),
        st.integers(0, 999_999).map(lambda n: n * 1_000),
    )


@st.composite
def written(draw: st.DrawFn, *syntaxes: str) -> tuple[Schema, Any]:
    schema = drawn_schema(draw, draw(st.sampled_from(syntaxes)))
    message = message_class(schema.text, "drawn.Outer")()
    Writer(draw, schema).fill(message, "Outer")
    return schema, message


# The oracle: google.protobuf's own JSON, with numbers as numbers and floats as the double that equals them.


def expected_document(message: Any) -> Any:
    found = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return _normal_message(found, message.DESCRIPTOR)


def _normal_message(found: Any, descriptor: Any) -> Any:
    name = descriptor.full_name.removeprefix("google.protobuf.")
    if name in WRAPPERS:
        return _normal(found, descriptor.fields_by_name["value"])
    if name in WELL_KNOWN:
        return found
    return {key: _normal_field(value, descriptor.fields_by_name[key]) for key, value in found.items()}


def _normal_field(found: Any, field: Any) -> Any:
    if field.message_type and field.message_type.GetOptions().map_entry:
        return {key: _normal(value, field.message_type.fields_by_name["value"]) for key, value in found.items()}
    if field.is_repeated:
        return [_normal(value, field) for value in found]
    return _normal(found, field)


def _normal(found: Any, field: Any) -> Any:
    if field.message_type:
        return _normal_message(found, field.message_type)
    if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
        return int(found)
    if field.type == field.TYPE_FLOAT and not isinstance(found, str):
        return struct.unpack("<f", struct.pack("<f", found))[0]
    return found
