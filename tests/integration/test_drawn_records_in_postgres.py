"""What fastavro and google.protobuf write is what PostgreSQL gives back, or a dead letter with the right reason.

Schemas and values are drawn, read by the product's decoder, copied into a real table in both formats of COPY, and read
by psycopg2. What must come back is worked out from the drawn values, by rules that are written here.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import count
from typing import Any
from unittest.mock import patch
from uuid import UUID

import psycopg2
import pyarrow as pa
import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg2 import sql

from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.kafka.registry import SCHEMA_KINDS, RegisteredSchema, SchemaRegistry
from kafka_ingest.protocol.target import written_columns
from kafka_ingest.settings import BatchSettings, ColumnSettings, ValueFormat, ValueSettings
from spark_jobs.copy_format import CSV, CopyFormat, binary_format
from spark_jobs.decode import avro_columns
from spark_jobs.decode.record import RecordDecoder, schemas_of
from tests import drawn_avro, drawn_protobuf
from tests.builders import batch_settings
from tests.decoding import BATCH_ID, batch_of, record, target_of
from tests.drawn_avro import Drawn
from tests.protobuf_messages import message_class

OUT_OF_RANGE, WRONG_TYPE = DeadLetterReason.OUT_OF_RANGE, DeadLetterReason.WRONG_TYPE
TOO_LONG, UNSUPPORTED_TEXT = DeadLetterReason.TOO_LONG, DeadLetterReason.UNSUPPORTED_TEXT
EPOCH, EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)
URLS = map("http://127.0.0.1:1/{}".format, count())


@dataclass(frozen=True)
class Fault:
    """No value can be stored; a value with two faults may be refused for either."""

    reasons: frozenset[DeadLetterReason]


def fault(*reasons: DeadLetterReason) -> Fault:
    return Fault(frozenset(reasons))


@dataclass(frozen=True)
class Column:
    """A column of the target, and what a record must leave in it."""

    path: tuple[str, ...]
    type: str
    expected: Sequence[Any]


class Store:
    """A session that copies decoded records into a table of their own and reads them back."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._cursor.execute("SET datestyle = 'SQL, DMY'; SET timezone = 'Asia/Kolkata'")
        connection.commit()

    def read_back(self, batch: BatchSettings, rows: pa.RecordBatch, copy_format: CopyFormat) -> list[tuple[Any, ...]]:
        """Copy rows, and return the columns of the value; jsonb as its text."""
        columns = written_columns(batch)
        defined = (sql.SQL("{} " + column.type).format(sql.Identifier(column.name)) for column in columns)
        names = sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
        shown = [
            sql.SQL("{}::text" if column.type == "jsonb" else "{}").format(sql.Identifier(column.name))
            for column in batch.value.columns
        ]
        run, mogrified = self._cursor.execute, sql.SQL(", ")
        try:
            run(sql.SQL("CREATE TEMPORARY TABLE t (n serial, {}) ON COMMIT DROP").format(mogrified.join(defined)))
            copy = sql.SQL("COPY t ({}) FROM STDIN WITH (" + copy_format.options + ")").format(names)
            self._cursor.copy_expert(copy, copy_format.encode(rows))
            # psycopg2 reads ISO dates alone, and in another zone it may be the year 10000.
            run("SET LOCAL datestyle = 'ISO'; SET LOCAL timezone = 'UTC'")
            run(sql.SQL("SELECT {} FROM t ORDER BY n").format(mogrified.join(shown)))
            return list(self._cursor.fetchall())
        finally:
            self._connection.rollback()

    def require(
        self, value_format: ValueFormat, schema: str, payloads: Sequence[bytes], columns: Sequence[Column]
    ) -> None:
        """Require that every record is what its columns expect, or a dead letter for a fault of theirs."""
        batch, decoder = _decoder(value_format, schema, columns)
        decoded = decoder.decode(batch_of(*(record(b"\0\0\0\0\1" + payload) for payload in payloads)), generation=0)
        faults = {row: found for row in range(len(payloads)) if (found := _first_fault(columns, row))}
        reasons = {dead.row_index: dead.reason for dead in decoded.dead}
        assert reasons.keys() == faults.keys(), decoded.dead
        assert {row: reason for row, reason in reasons.items() if reason not in faults[row].reasons} == {}
        for copy_format in (CSV, binary_format([column.type for column in written_columns(batch)])):
            if copy_format is None or not decoded.row_index:
                continue
            stored = self.read_back(batch, decoded.columns, copy_format)
            for row, cells in zip(decoded.row_index, stored, strict=True):
                for column, cell in zip(columns, cells, strict=True):
                    assert _comparable(column.type, cell) == _comparable(column.type, column.expected[row]), column


def _decoder(value_format: ValueFormat, schema: str, columns: Sequence[Column]) -> tuple[BatchSettings, RecordDecoder]:
    """Return the decoder of a pipeline whose registry has one schema, with the number 1."""
    registry = {"connection": "registry", "url": next(URLS)}
    found = RegisteredSchema(SCHEMA_KINDS[value_format], schema, {})
    with patch.object(SchemaRegistry, "schema", lambda *_: found):
        schemas_of(registry, value_format, None).get(1)
    named = tuple(ColumnSettings(f"c{place}", column.type, column.path) for place, column in enumerate(columns))
    batch = replace(batch_settings(), value=ValueSettings(value_format, named))
    return batch, RecordDecoder(batch, target_of(batch), batch_id=BATCH_ID, registry=registry)


def _first_fault(columns: Sequence[Column], row: int) -> Fault | None:
    return next((column.expected[row] for column in columns if isinstance(column.expected[row], Fault)), None)


def _comparable(type_name: str, value: Any) -> Any:
    """Tell also True from 1, -0.0 from 0.0 and NaN from all else; numbers of a document are equal by their value."""
    if value is None:
        return None
    if type_name == "jsonb":
        return _document(json.loads(value, parse_float=Decimal) if isinstance(value, str) else value.value)
    if type_name in ("real", "double precision"):
        return "NaN" if math.isnan(value) else struct.pack("<f" if type_name == "real" else "<d", value)
    if isinstance(value, memoryview):
        return bytes, bytes(value)
    return type(value), value


def _document(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _document(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_document(each) for each in value]
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return type(value), value


@dataclass(frozen=True)
class Document:
    """What a jsonb column must say; a text of psycopg2 is told from it."""

    value: Any


@pytest.fixture
def store(database: dict[str, Any]) -> Iterator[Store]:
    with closing(psycopg2.connect(**database)) as connection:
        yield Store(connection)


drawn_in_postgres = settings(
    max_examples=100,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)

# What columns make of a value, whoever wrote it.


def drawn_type(draw: st.DrawFn, types: tuple[str, ...]) -> str:
    """Draw one of the types; jsonb, which takes everything, is the last and the least likely."""
    return draw(st.sampled_from((*(types[:-1] * 3), types[-1])))


INTEGERS = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}


def stored_integer(type_name: str, number: int) -> Any:
    limit = INTEGERS[type_name]
    return number if -limit <= number < limit else fault(OUT_OF_RANGE)


def stored_numeric(type_name: str, number: Decimal) -> Any:
    if type_name == "numeric":
        return number
    precision, scale = map(int, type_name.removeprefix("numeric(").removesuffix(")").split(","))
    fits = number.scaleb(scale) % 1 == 0 and abs(number) < 10 ** (precision - scale)
    return number if fits else fault(OUT_OF_RANGE)


def stored_text(type_name: str, text: str) -> Any:
    too_long = type_name == "varchar(5)" and len(text) > 5
    reasons = [UNSUPPORTED_TEXT] * ("\0" in text) + [TOO_LONG] * too_long
    return fault(*reasons) if reasons else text


def stored_moment(seconds: int, nanoseconds: int) -> Any:
    """Return an instant, in seconds and nanoseconds since 1970."""
    if nanoseconds % 1_000:
        return fault(OUT_OF_RANGE)
    try:
        return EPOCH + timedelta(seconds=seconds, microseconds=nanoseconds // 1_000)
    except OverflowError:
        return fault(WRONG_TYPE)  # its text has no year of four digits


def stored_json(document: Any, reasons: set[DeadLetterReason]) -> Any:
    return fault(*reasons) if reasons else Document(document)


# Avro.

SURE: Mapping[str, tuple[str, ...]] = {
    "null": ("text", "jsonb"),
    "boolean": ("boolean", "jsonb"),
    "int": ("smallint", "integer", "bigint", "numeric", "jsonb"),
    "long": ("integer", "bigint", "numeric(12,3)", "jsonb"),
    "float": ("real", "double precision", "jsonb"),
    "double": ("double precision", "jsonb"),
    "string": ("text", "varchar(5)", "jsonb"),
    "bytes": ("bytea", "jsonb"),
}


def avro_types(of: Drawn) -> tuple[str, ...]:
    """Return column types of which the rules here tell what becomes of each value."""
    schema = of.schema
    if isinstance(schema, list) and len(schema) == 2 and "null" in schema:
        schema = next(branch for branch in schema if branch != "null")
    if isinstance(schema, str):
        return SURE[schema]
    if isinstance(schema, list) or schema["type"] in ("map", "record"):
        return ("jsonb",)
    if schema["type"] == "array":
        return ("integer[]", "jsonb") if schema["items"] == "int" else ("jsonb",)
    return of.columns if of in BEYOND else (*of.columns, "jsonb")


def stored_avro(type_name: str, written: Any, document: Any) -> Any:
    """Return what a column of a type must hold of a drawn value, which a document spells like this."""
    if written is None:
        return None
    if isinstance(document, Fault):
        return document
    if type_name in INTEGERS:
        return stored_integer(type_name, written)
    if type_name.startswith("numeric"):
        return stored_numeric(type_name, Decimal(written))
    if type_name in ("text", "varchar(5)"):
        return stored_text(type_name, written)
    if type_name in ("timestamp", "timestamptz"):
        whole, _, fraction = document.removesuffix("Z").partition(".")
        moment = datetime.fromisoformat(whole + "Z")
        found = stored_moment((moment - EPOCH) // timedelta(seconds=1), int(fraction.ljust(9, "0")))
        return found.replace(tzinfo=None) if type_name == "timestamp" and isinstance(found, datetime) else found
    if type_name == "jsonb":
        return stored_json(document, avro_faults(document))
    of_document = OF_DOCUMENTS.get(type_name)
    return of_document(document) if of_document else written


OF_DOCUMENTS: Mapping[str, Callable[[str], Any]] = {
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "uuid": lambda text: str(UUID(text)),
    "bytea": base64.b64decode,
}


def avro_faults(document: Any) -> set[DeadLetterReason]:
    """Return why jsonb cannot hold a document."""
    if isinstance(document, dict):
        return avro_faults([*document, *document.values()])
    if isinstance(document, list):
        return set().union(*map(avro_faults, document))
    if isinstance(document, Decimal) and document in drawn_avro.SPECIAL.values():
        return {OUT_OF_RANGE}
    return {UNSUPPORTED_TEXT} if isinstance(document, str) and "\0" in document else set()


def _day(number: int) -> tuple[int, Any]:
    try:
        return number, (EPOCH_DAY + timedelta(days=number)).isoformat()
    except OverflowError:
        return number, fault(WRONG_TYPE)


def _millis(number: int) -> tuple[int, Any]:
    found = stored_moment(*divmod(number * 1_000_000, 10**9))
    return number, found if isinstance(found, Fault) else found.isoformat(timespec="milliseconds")[:-6] + "Z"


def around(*limits: int) -> st.SearchStrategy[int]:
    """Draw numbers beside limits, or far away."""
    near = st.tuples(st.sampled_from(limits), st.integers(-3, 2)).map(sum)
    return near | st.integers(-(2**31), 2**31 - 1)


#: Days and instants also outside the years 1 to 9999, and just inside.
BEYOND = (
    Drawn({"type": "int", "logicalType": "date"}, around(-719_162, 2_932_897).map(_day), ("date",)),
    Drawn(
        {"type": "long", "logicalType": "timestamp-millis"},
        around(-62_135_596_800_000, 253_402_300_800_000, 2**63 - 4, 4 - 2**63).map(_millis),
        ("timestamptz",),
    ),
)
#: Mostly types that have columns of their own, each as likely as any other.
PLAIN = st.sampled_from(drawn_avro.PLAIN)
OTHERS = st.one_of(drawn_avro.LEAVES, drawn_avro.nullable(drawn_avro.LEAVES), drawn_avro.TYPES)
INTS = drawn_avro.array_of(drawn_avro.simple("int", drawn_avro.INTS, drawn_avro.same))


FIELDS: st.SearchStrategy[Drawn] = st.sampled_from(
    [st.sampled_from((*BEYOND, INTS)), OTHERS, OTHERS, OTHERS, *[PLAIN] * 5, *[drawn_avro.nullable(PLAIN)] * 3]
).flatmap(lambda fields: fields)


def paths_of(of: Drawn, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Drawn]]:
    for name, field in (of.fields or {}).items():
        yield (*above, name), field
        yield from paths_of(field, (*above, name))


def at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value[name] if value is not None else None
    return value


@st.composite
def avro_batches(draw: st.DrawFn) -> tuple[str, list[bytes], list[Column]]:
    of = drawn_avro.record_of({f"f{number}": draw(FIELDS) for number in range(draw(st.integers(3, 6)))})
    pairs = draw(st.lists(of.pairs, min_size=4, max_size=8))
    columns = [Column(("missing",), "text", [None] * len(pairs))]
    for path, field in draw(st.permutations(list(paths_of(of)))):
        if draw(st.integers(0, 5)) == 0:
            continue  # no column reads it, so nothing in it is a fault
        type_name = drawn_type(draw, avro_types(field))
        expected = [stored_avro(type_name, at(value, path), at(document, path)) for value, document in pairs]
        columns.append(Column(path, type_name, expected))
    return json.dumps(of.schema), [drawn_avro.written(of.schema, value) for value, _ in pairs], columns


@drawn_in_postgres
@given(drawn=avro_batches(), by_whole_columns=st.booleans())
def test_what_fastavro_wrote_is_what_postgresql_gives_back_or_a_dead_letter_that_says_why(
    drawn: tuple[str, list[bytes], list[Column]], by_whole_columns: bool, store: Store
) -> None:
    with patch.object(avro_columns, "FEWEST_RECORDS", 1 if by_whole_columns else 64):
        store.require(ValueFormat.AVRO, *drawn)


# Protobuf.

OF_SCALARS: Mapping[str, tuple[str, ...]] = {
    "bool": ("boolean",),
    "bytes": ("bytea",),
    "string": ("text", "varchar(5)"),
    "float": ("real", "double precision"),
    "double": ("double precision",),
    **dict.fromkeys(("int32", "sint32", "sfixed32", "uint32", "fixed32"), ("smallint", "integer", "bigint")),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint64", "fixed64"), ("bigint", "numeric", "numeric(12,3)")),
}
OF_OTHERS: Mapping[str, tuple[str, ...]] = {"Kind": ("text",), "Timestamp": ("timestamptz",)}


def protobuf_types(field: drawn_protobuf.Field) -> tuple[str, ...]:
    name = field.type.removeprefix("google.protobuf.")
    if field.label in ("repeated", "map"):
        return ("integer[]", "jsonb") if (field.label, name) == ("repeated", "int32") else ("jsonb",)
    scalar = OF_SCALARS.get(drawn_protobuf.WRAPPERS.get(name, name), ())
    return (*scalar, *OF_OTHERS.get(name, ()), "jsonb")


def stored_protobuf(type_name: str, message: Any, field: drawn_protobuf.Field, document: Mapping[str, Any]) -> Any:
    """Return what a column of a type must hold of a field of a message, of which Protobuf's JSON says ``document``."""
    described = message.DESCRIPTOR.fields_by_name[field.name]
    value = getattr(message, field.name)
    if described.has_presence and not message.HasField(field.name):
        return None
    if type_name == "jsonb":
        # google.protobuf.Value and its like may stand for null, which a column takes for nothing.
        found = document[field.name]
        return None if found is None else stored_json(found, protobuf_faults(value))
    if type_name == "integer[]":
        return list(value)
    name = field.type.removeprefix("google.protobuf.")
    if name == "Timestamp":
        return stored_moment(value.seconds, value.nanos)
    if name == "Kind":
        known = described.enum_type.values_by_number.get(value)
        return known.name if known else fault(WRONG_TYPE)
    value = value.value if name in drawn_protobuf.WRAPPERS else value
    if type_name in INTEGERS:
        return stored_integer(type_name, value)
    if type_name.startswith("numeric"):
        return stored_numeric(type_name, Decimal(value))
    return stored_text(type_name, value) if type_name in ("text", "varchar(5)") else value


def protobuf_faults(value: Any) -> set[DeadLetterReason]:
    """Return why jsonb cannot hold a value, a list, a map or a message."""
    if isinstance(value, float):
        return set() if math.isfinite(value) else {OUT_OF_RANGE}
    if isinstance(value, str):
        return {UNSUPPORTED_TEXT} if "\0" in value else set()
    if isinstance(value, Message):
        return set().union(*(protobuf_faults(of) for _, of in value.ListFields()))
    if isinstance(value, bool | int | bytes):
        return set()
    items: list[Any] = [*value, *(value[key] for key in value)] if hasattr(value, "keys") else list(value)
    return set().union(*map(protobuf_faults, items))


PROTOBUF_PLAIN = st.sampled_from(
    [
        *OF_SCALARS,
        "Kind",
        *["google.protobuf.Timestamp"] * 4,
        *(f"google.protobuf.{name}" for name in drawn_protobuf.WRAPPERS),
    ]
)


@st.composite
def protobuf_batches(draw: st.DrawFn) -> tuple[str, list[bytes], list[Column]]:
    schema = drawn_protobuf.drawn_schema(draw, draw(st.sampled_from(["proto2", "proto3"])))
    # More of those that have columns of their own.
    for number in range(1_000, 1_000 + draw(st.integers(1, 4))):
        label = draw(st.sampled_from(["optional", "optional", "oneof", "repeated"]))
        schema.messages["Outer"].append(
            drawn_protobuf.Field(label, draw(PROTOBUF_PLAIN), "int32", f"plain{number}", number)
        )
    outer = message_class(schema.text, "drawn.Outer")
    messages = [outer() for _ in range(draw(st.integers(2, 5)))]
    for message in messages:
        drawn_protobuf.Writer(draw, schema).fill(message, "Outer")
    documents = [drawn_protobuf.expected_document(message) for message in messages]
    columns = [Column(("missing",), "text", [None] * len(messages))]
    for field in schema.messages["Outer"]:
        type_name = drawn_type(draw, protobuf_types(field))
        pairs = zip(messages, documents, strict=True)
        expected = [stored_protobuf(type_name, message, field, document) for message, document in pairs]
        columns.append(Column((field.name,), type_name, expected))
    return schema.text, [b"\0" + message.SerializeToString() for message in messages], columns


@drawn_in_postgres
@given(drawn=protobuf_batches())
def test_what_google_protobuf_wrote_is_what_postgresql_gives_back_or_a_dead_letter_that_says_why(
    drawn: tuple[str, list[bytes], list[Column]], store: Store
) -> None:
    store.require(ValueFormat.PROTOBUF, *drawn)
