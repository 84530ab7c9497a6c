"""Sampled records of registered schemas become documents, with the column type of every place: for a draft.

Run as ``python -m spark_jobs.read_sample`` by ``kafka_ingest/spark/samples.py``, which says what goes in and out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec

from kafka_ingest.kafka.registry import UnusableSchema
from kafka_ingest.spark.samples import Answer, Place, ReadSample, RecordType, SchemaSample
from spark_jobs.decode.avro import AvroSchema
from spark_jobs.decode.avro_schema import AvroType
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
from spark_jobs.decode.protobuf import ProtobufSchema
from spark_jobs.decode.values import DecodeError

#: Levels that are flattened into columns, as of JSON documents (``kafka_ingest/draft/fields.py``).
_MAX_DEPTH = 5
#: Places of a type. A file has 200 columns at most, and a schema whose types share types may have billions of places.
_MAX_PLACES = 5_000
#: Types of Protobuf, uint64 and fixed64, and the digits of their greatest values.
_UNSIGNED, _UNSIGNED_DIGITS = (4, 6), 20
#: PostgreSQL keeps microseconds.
_MOST_DIGITS = 6


def main() -> None:
    """Answer what standard input asks."""
    samples = msgspec.json.decode(sys.stdin.buffer.read(), type=list[SchemaSample])
    try:
        answer = Answer([read_sample(sample) for sample in samples])
    except ImportError as error:
        answer = Answer(missing=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def read_sample(sample: SchemaSample) -> ReadSample:
    """Read the records of one schema.

    Raises:
        ImportError: A package of its format is not installed.
    """
    try:
        return _protobuf(sample) if sample.kind == "PROTOBUF" else _avro(sample)
    except UnusableSchema as error:
        return ReadSample(faults=str(error), faulty=len(sample.payloads))


def _of_documents(found: Sequence[bytes | DecodeError]) -> tuple[list[str], list[str]]:
    """Part documents from the details of records that are none."""
    documents = [of.decode() for of in found if isinstance(of, bytes)]
    return documents, [of.detail for of in found if isinstance(of, DecodeError)]


# Avro.


def _avro(sample: SchemaSample) -> ReadSample:
    schema = AvroSchema(sample.text, tuple(sample.references.values()))
    documents, faults = _of_documents(schema.documents(sample.payloads))
    places = list(islice(_avro_places(schema.root, (), ()), _MAX_PLACES))
    return ReadSample([RecordType("", places, documents)], "".join(faults[:1]), len(faults))


def _avro_places(of: AvroType, path: tuple[str, ...], above: Sequence[AvroType]) -> Iterator[Place]:
    """Yield the places that need a column each: records are flattened."""
    others = [part for part in of.parts if part.kind != "null"]
    of = others[0] if of.kind == "union" and len(others) == 1 else of
    if of.kind != "record" or of.meaning or not of.fields or len(path) == _MAX_DEPTH or of in above:
        yield _avro_place(path, of, "it holds itself" if of in above else "")
        return
    for name, field in of.fields:
        yield from _avro_places(field, (*path, name), [*above, of])


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


def _avro_place(path: tuple[str, ...], of: AvroType, why: str) -> Place:
    if of.kind == "union":
        why = f"a union of {', '.join(part.kind for part in of.parts)}"
    if of.kind == "string":
        return Place(path, _NAMED_STRINGS.get(of.name, "text"), name=of.name)
    if of.meaning == "decimal":
        return Place(path, "numeric", of.precision, of.digits, name=of.name)
    found = _AVRO_MEANINGS.get(of.meaning) or _AVRO_KINDS.get(of.kind, "jsonb")
    return Place(path, found, is_finer=of.digits > _MOST_DIGITS, name=of.name, why=why)


# Protobuf.


def _protobuf(sample: SchemaSample) -> ReadSample:
    schema = ProtobufSchema(sample.text, sample.references)
    payloads: dict[str, list[bytes]] = {}
    faults: list[str] = []
    for payload in sample.payloads:
        try:
            payloads.setdefault(schema.files.named(payload)[0], []).append(payload)
        except DecodeError as error:
            faults.append(error.detail)
    types = []
    for name, own in payloads.items():
        documents, others = _of_documents(schema.documents(own))
        places = list(islice(_message_places(schema, name, (), ()), _MAX_PLACES))
        types.append(RecordType(name, places, documents))
        faults += others
    return ReadSample(types, "".join(faults[:1]), len(faults))


def _message_places(schema: ProtobufSchema, name: str, path: tuple[str, ...], above: Sequence[str]) -> Iterator[Place]:
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
        if member.label == member.LABEL_REPEATED:
            yield Place(place, "jsonb")
        elif member.type in (TYPE_MESSAGE, TYPE_GROUP):
            yield from _message_places(schema, member.type_name[1:], place, [*above, name])
        else:
            yield _member(schema, member, place)


#: Messages that are no object of their fields; those that are not here are any JSON.
_SPECIAL = {"Timestamp": "timestamptz", "Duration": "text", "FieldMask": "text", "Decimal": "numeric"}
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


def _special_type(schema: ProtobufSchema, name: str) -> Place | None:
    """Return what a column of a message holds that is no object of its fields; ``None`` for all others."""
    if not schema.readers.special(schema.files.pool.FindMessageTypeByName(name)):
        return None
    if schema.files.file_names[name].endswith("/wrappers.proto"):
        return replace(_member(schema, schema.files.declared[name].field[0], ()), name=name)
    found = _SPECIAL.get(name.rpartition(".")[2], "jsonb")
    return Place((), found, is_finer=found == "timestamptz", name=name)


def _member(schema: ProtobufSchema, member: Any, path: tuple[str, ...]) -> Place:
    if member.type == TYPE_ENUM:
        # The one name of NullValue is null.
        names = schema.files.enums[member.type_name[1:]].values()
        return Place(path, "text" if None not in names else "jsonb")
    return Place(path, _MEMBERS[member.type], _UNSIGNED_DIGITS if member.type in _UNSIGNED else 0)


if __name__ == "__main__":
    main()
