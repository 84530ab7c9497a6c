"""Where values stand in the documents of Avro and Protobuf schemas, and the column types that hold them.

A draft asks for all places of a schema, a load for the type of a field that it has met and no column reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.spark.samples import Place
from spark_jobs.decode.avro_schema import AvroType
from spark_jobs.decode.paths import TypeOf, as_jsonb
from spark_jobs.decode.proto_files import (
    TYPE_BOOL,
    TYPE_BYTES,
    TYPE_DOUBLE,
    TYPE_ENUM,
    TYPE_FLOAT,
    TYPE_GROUP,
    TYPE_MESSAGE,
    TYPE_STRING,
)
from spark_jobs.decode.values import DecodeError

if TYPE_CHECKING:
    from spark_jobs.decode.protobuf import ProtobufSchema

#: Levels that are flattened into columns, as of JSON documents (``kafka_ingest/draft/fields.py``).
_MAX_DEPTH = 5
#: PostgreSQL keeps microseconds.
_MOST_DIGITS = 6

#: What holds every value where the column of a draft may refuse some, by the draft's type and the schema's name: a
#: draft has seen the values, a load has not. A zoned timestamp is a text, maybe of nanoseconds or ``infinity``; a mask
#: is a list where one text would name other paths.
_HOLD_ALL = {
    ("timestamptz", "io.debezium.time.ZonedTimestamp"): "text",
    ("text", "google.protobuf.FieldMask"): "jsonb",
}


def _column_type(place: Place) -> str:
    """Return the type of a column that holds every value of a place."""
    if place.is_finer:
        return "jsonb"  # a column of times would refuse nanoseconds, and only a person may choose to round them
    return parse_column_type(_HOLD_ALL.get((place.type, place.name), place.sql)).sql


# Avro.


def avro_places(of: AvroType, path: tuple[str, ...] = (), above: Sequence[AvroType] = ()) -> Iterator[Place]:
    """Yield the places that need a column each: records are flattened."""
    of = _without_null(of)
    if of.kind != "record" or of.meaning or not of.fields or len(path) == _MAX_DEPTH or of in above:
        yield _avro_place(path, of, "it holds itself" if of in above else "")
        return
    for name, field in of.fields:
        yield from avro_places(field, (*path, name), [*above, of])


def avro_types(root: AvroType) -> Callable[[pa.Array], Sequence[TypeOf]]:
    """Return what tells, for each payload of a schema, the types of columns for its fields."""
    type_of = partial(_type_in_avro, root)
    return lambda payloads: [type_of] * len(payloads)


def _type_in_avro(of: AvroType, path: tuple[str, ...]) -> str:
    for key in path:
        of = _without_null(of)
        if of.kind == "map":
            below: AvroType | None = of.parts[0]
        else:
            below = None if of.meaning else dict(of.fields).get(key)
        if below is None:
            return "jsonb"  # a member of one of several branches, or none that the schema names
        of = below
    return _column_type(_avro_place(path, _without_null(of)))


def _without_null(of: AvroType) -> AvroType:
    others = [part for part in of.parts if part.kind != "null"]
    return others[0] if of.kind == "union" and len(others) == 1 else of


#: Column types of the kinds, and of the meanings that say more.
_AVRO_KINDS = {
    "boolean": "boolean",
    "int": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "bytes": "bytea",
    "fixed": "bytea",
    "string": "text",
    "enum": "text",
}
_AVRO_MEANINGS = {
    "date": "date",
    "time": "time",
    "instant": "timestamptz",
    "local": "timestamp",
    "decimal": "numeric",
    "variable_decimal": "numeric",
    "uuid": "uuid",
    "duration": "jsonb",
}
#: Strings whose names say what they hold. https://debezium.io/documentation/reference/3.0/connectors/postgresql.html
_NAMED_STRINGS = {"uuid": "uuid", "io.debezium.data.Uuid": "uuid", "io.debezium.time.ZonedTimestamp": "timestamptz"}


def _avro_place(path: tuple[str, ...], of: AvroType, why: str = "") -> Place:
    if of.kind == "union":
        why = f"a union of {', '.join(part.kind for part in of.parts)}"
    if of.kind == "string":
        return Place(path, _NAMED_STRINGS.get(of.name, "text"), name=of.name)
    if of.meaning == "decimal":
        return Place(path, "numeric", of.precision, of.digits, name=of.name)
    found = _AVRO_MEANINGS.get(of.meaning) or _AVRO_KINDS.get(of.kind, "jsonb")
    return Place(path, found, is_finer=of.digits > _MOST_DIGITS, name=of.name, why=why)


# Protobuf.


def message_places(
    schema: ProtobufSchema, name: str, path: tuple[str, ...] = (), above: Sequence[str] = ()
) -> Iterator[Place]:
    """Yield the places of a message that need a column each: messages are flattened."""
    special, declared = _special_type(schema, name), schema.files.declared[name]
    if special:
        yield replace(special, path=path)
        return
    if not declared.field or len(path) == _MAX_DEPTH or name in above:
        yield Place(path, "jsonb", why="it holds itself" if name in above else "")
        return
    for member in declared.field:
        place = (*path, member.name)
        if _is_message(member) and member.label != member.LABEL_REPEATED:
            yield from message_places(schema, member.type_name[1:], place, [*above, name])
        else:
            yield _member(schema, member, place)


def protobuf_types(schema: ProtobufSchema) -> Callable[[pa.Array], Sequence[TypeOf]]:
    """Return what tells, for each payload of a schema, the types of columns for the fields of its message."""

    @cache
    def of_message(name: str) -> TypeOf:
        return partial(_type_in_message, schema, name)

    def of_payload(payload: bytes) -> TypeOf:
        try:
            return of_message(schema.files.named(payload)[0])
        except DecodeError:
            return as_jsonb  # no record, and so a dead letter

    return lambda payloads: list(map(of_payload, payloads.to_pylist()))


def _type_in_message(schema: ProtobufSchema, name: str, path: tuple[str, ...]) -> str:
    member: Any = None
    for key in path:
        if member is not None:
            name = member.type_name[1:]
        member = _member_at(schema, name, key)
        if member is None:
            return "jsonb"  # such as a member of a Struct
    return _column_type(_member(schema, member, path))


def _member_at(schema: ProtobufSchema, name: str, key: str) -> Any:
    """Return the field that holds a key of a message's document; that of the values for a map's entries."""
    declared = schema.files.declared.get(name)
    if declared and declared.options.map_entry:
        return declared.field[1]
    if declared is None or _special_type(schema, name):
        return None
    return next((member for member in declared.field if member.name == key), None)


#: Messages that are no object of their fields; those that are not here are any JSON.
_SPECIAL = {"Timestamp": "timestamptz", "Duration": "text", "FieldMask": "text", "Decimal": "numeric"}
#: Types of Protobuf, uint64 and fixed64, and the digits of their greatest values.
_UNSIGNED, _UNSIGNED_DIGITS = (4, 6), 20
# FieldDescriptorProto.Type, descriptor.proto of Protobuf.
_MEMBERS = {
    **dict.fromkeys((5, 15, 17), "integer"),  # int32, sfixed32, sint32
    **dict.fromkeys((7, 13, 3, 16, 18), "bigint"),  # fixed32, uint32, int64, sfixed64, sint64
    **dict.fromkeys(_UNSIGNED, "numeric"),
    TYPE_BOOL: "boolean",
    TYPE_BYTES: "bytea",
    TYPE_DOUBLE: "double precision",
    TYPE_FLOAT: "real",
    TYPE_STRING: "text",
}


def _is_message(member: Any) -> bool:
    return member.type in (TYPE_MESSAGE, TYPE_GROUP)


def _special_type(schema: ProtobufSchema, name: str) -> Place | None:
    """Return what a column of a message holds that is no object of its fields; ``None`` for all others."""
    if not schema.readers.special(schema.files.pool.FindMessageTypeByName(name)):
        return None
    if schema.files.file_names[name].endswith("/wrappers.proto"):
        return replace(_member(schema, schema.files.declared[name].field[0], ()), name=name)
    found = _SPECIAL.get(name.rpartition(".")[2], "jsonb")
    return Place((), found, is_finer=found == "timestamptz", name=name)


def _member(schema: ProtobufSchema, member: Any, path: tuple[str, ...]) -> Place:
    """Return the place of a field that one column takes."""
    if member.label == member.LABEL_REPEATED:
        return Place(path, "jsonb")
    if _is_message(member):
        return replace(_special_type(schema, member.type_name[1:]) or Place((), "jsonb"), path=path)
    if member.type == TYPE_ENUM:
        # The one name of NullValue is null.
        names = schema.files.enums[member.type_name[1:]].values()
        return Place(path, "text" if None not in names else "jsonb")
    return Place(path, _MEMBERS[member.type], _UNSIGNED_DIGITS if member.type in _UNSIGNED else 0)
