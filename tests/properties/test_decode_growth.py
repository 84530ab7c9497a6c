"""What one record costs, whatever it holds: time that grows no more than its size, and memory of a few times its size.

Growth and not time is looked at, so that a busy machine changes nothing.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from unittest.mock import patch

import pyarrow as pa
import pytest

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.kafka.registry import SCHEMA_KINDS, RegisteredSchema, SchemaRegistry
from kafka_ingest.protocol.staging import Split
from kafka_ingest.protocol.target import written_columns
from kafka_ingest.settings import (
    BatchSettings,
    ColumnSettings,
    Conversion,
    KeyFormat,
    KeySettings,
    NewFields,
    Occurrence,
    ValueFormat,
    ValueSettings,
)
from spark_jobs.copy_format import CSV, CopyFormat, binary_format
from spark_jobs.decode.record import RecordDecoder, schemas_of
from spark_jobs.staging import DEAD_LETTER_TYPES, dead_letter_rows
from tests.avro_encoding import sized
from tests.builders import batch_settings
from tests.decoding import BATCH_ID, batch_of, json_settings, record, target_of
from tests.growth import MOST_GROWTH, growth
from tests.hostile_records import HOSTILE
from tests.protobuf_messages import varint

MEMORY_BYTES = 65_536
MOST_TIMES_THE_RECORD = 10
#: A byte of packed numbers is a number of two to four characters, and a Python object of eight bytes.
MORE_TIMES_THE_RECORD = {"protobuf numbers": 40}
#: Blocks of objects, buffers and patterns, which do not grow with the record.
CONSTANT_BYTES = 1_000_000

# Every rule, and arrays of each kind of text that an element becomes.
TYPES = (
    "boolean", "bigint", "real", "double precision", "numeric", "numeric(12,2)", "text", "varchar(10)", "date",
    "timestamptz", "uuid", "jsonb", "bytea", "integer[]", "numeric[]", "text[]", "bytea[]", "timestamptz[]",
    "timestamptz as epoch_seconds", "date as epoch_nanos", "bigint as number_text", "double precision as number_text",
    "jsonb as json_text", "bytea as hex",
)  # fmt: skip

CONVERTED = [name for name in TYPES if " as " in name]

_SUBRANGE = Split(0, "orders", 0, 3, 0, 1)
_DEAD_LETTERS = binary_format(DEAD_LETTER_TYPES[:-2], arrays_are_lists=True)


class Pipeline:
    """Settings, and how a hostile value becomes a record of theirs."""

    def __init__(
        self,
        settings: BatchSettings,
        record_of: Callable[[bytes], pa.RecordBatch],
        registry: Mapping[str, str] | None = None,
    ) -> None:
        self._decoder = RecordDecoder(settings, target_of(settings), batch_id=BATCH_ID, registry=registry or {})
        self._formats = [CSV]
        if binary := binary_format([parse_column_type(column.type).sql for column in written_columns(settings)]):
            self._formats.append(binary)
        self.record_of = record_of

    def load(self, records: pa.RecordBatch) -> None:
        """Does everything that a task does with records, up to the socket."""
        decoded = self._decoder.decode(records, generation=0)
        if decoded.row_index:
            for copy_format in self._formats:
                _read(copy_format, decoded.columns)
        if decoded.dead:
            assert _DEAD_LETTERS is not None
            _read(_DEAD_LETTERS, dead_letter_rows(records, decoded.dead, _SUBRANGE))


def _read(copy_format: CopyFormat, rows: pa.RecordBatch) -> None:
    data = copy_format.encode(rows)
    while data.read(65_536):
        pass


def _columns(*columns: ColumnSettings) -> Pipeline:
    return Pipeline(json_settings(*columns), lambda value: batch_of(record(b'{"a":' + value + b"}")))


def _whole(value_format: ValueFormat, type_name: str) -> Pipeline:
    value = ValueSettings(value_format, (ColumnSettings("a", type_name),))
    return Pipeline(replace(batch_settings(), value=value), lambda value: batch_of(record(value)))


def _key(key_format: KeyFormat) -> Pipeline:
    settings = replace(json_settings(ColumnSettings("a", "text", ("a",))), key=KeySettings(key_format, "k"))
    return Pipeline(settings, lambda key: batch_of(record(key=key)))


def _header(place: str) -> Pipeline:
    settings = json_settings(ColumnSettings("a", "text", ("a",)), headers_column="h")

    def record_of(data: bytes) -> pa.RecordBatch:
        name = data.decode("latin-1") if place == "name" else "trace"
        return batch_of(record(headers=[{"name": name, "value": data if place == "value" else b""}]))

    return Pipeline(settings, record_of)


def _header_column(type_name: str) -> Pipeline:
    column = ColumnSettings("h", type_name, header="name", occurrence=Occurrence.LAST)
    settings = json_settings(ColumnSettings("a", "text", ("a",)), column)
    return Pipeline(settings, lambda data: batch_of(record(headers=[{"name": "name", "value": data}])))


def _framed(value_format: ValueFormat, schema: str, type_name: str, payload_of: Callable[[bytes], bytes]) -> Pipeline:
    """Return the pipeline of a registry's format, whose only schema has the number 1."""
    value = ValueSettings(value_format, (ColumnSettings("a", type_name, ("a",)),))
    registry = {"connection": "registry", "url": f"http://127.0.0.1:1/{len(schema)}"}
    kind = SCHEMA_KINDS[value_format]
    with patch.object(SchemaRegistry, "schema", lambda *_: RegisteredSchema(kind, schema, {})):
        schemas_of(registry, value_format, None).get(1)
    settings = replace(batch_settings(), value=value)
    return Pipeline(settings, lambda data: batch_of(record(b"\0\0\0\0\1" + payload_of(data))), registry)


def _avro(of: object, type_name: str, payload_of: Callable[[bytes], bytes]) -> Pipeline:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": of}]}
    return _framed(ValueFormat.AVRO, json.dumps(schema), type_name, payload_of)


def _protobuf(fields: str, type_name: str, payload_of: Callable[[bytes], bytes]) -> Pipeline:
    text = f'syntax = "proto3"; message R {{ {fields} }}'
    return _framed(ValueFormat.PROTOBUF, text, type_name, lambda data: b"\0" + payload_of(data))


_LIST: dict[str, object] = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": {"type": "array", "items": ["null", "Node", "long", "string"]}}],
}


def _watched(policy: NewFields) -> Pipeline:
    settings = json_settings(ColumnSettings("b", "text", ("a", "b")))
    settings = replace(settings, value=replace(settings.value, new_fields=policy))
    return Pipeline(settings, lambda value: batch_of(record(b'{"a":' + value + b"}")))


def _many_headers(size: int) -> pa.RecordBatch:
    return batch_of(record(headers=[{"name": f"name{n:06}", "value": b"%06d" % n} for n in range(size // 16)]))


def _many_of_one_name(size: int) -> pa.RecordBatch:
    return batch_of(record(headers=[{"name": "name", "value": b"%012d" % n} for n in range(size // 16)]))


OTHERS: dict[str, Callable[[], Pipeline]] = {
    "a column and one below it": lambda: _columns(
        ColumnSettings("a", "jsonb", ("a",)), ColumnSettings("b", "integer", ("a", "b"))
    ),
    "a key that no struct can name": lambda: _columns(ColumnSettings("a", "jsonb", ('a"b',))),
    "json": lambda: _whole(ValueFormat.JSON, "jsonb"),
    "text": lambda: _whole(ValueFormat.TEXT, "text"),
    "short text": lambda: _whole(ValueFormat.TEXT, "varchar(10)"),
    "raw": lambda: _whole(ValueFormat.RAW, "bytea"),
    "json key": lambda: _key(KeyFormat.JSON),
    "text key": lambda: _key(KeyFormat.TEXT),
    "raw key": lambda: _key(KeyFormat.RAW),
    "header name": lambda: _header("name"),
    "header value": lambda: _header("value"),
    "text from a header": lambda: _header_column("text"),
    "uuid from a header": lambda: _header_column("uuid"),
    "jsonb from a header": lambda: _header_column("jsonb"),
    "new fields, of which a warning tells": lambda: _watched(NewFields.WARN),
    "new fields, which are refused": lambda: _watched(NewFields.DEAD_LETTER),
    "avro text": lambda: _avro("string", "text", sized),
    "avro bytes": lambda: _avro("bytes", "bytea", sized),
    "avro decimal": lambda: _avro(
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "numeric", sized
    ),
    "avro that is hostile itself": lambda: _avro(_LIST, "jsonb", lambda data: data),
    "protobuf text": lambda: _protobuf("string a = 1;", "text", lambda data: b"\x0a" + varint(len(data)) + data),
    "protobuf numbers": lambda: _protobuf(
        "repeated int64 a = 1;", "jsonb", lambda data: b"\x0a" + varint(len(data)) + bytes(b & 0x7F for b in data)
    ),
    "protobuf that is hostile itself": lambda: _protobuf("R a = 1; repeated R b = 4;", "jsonb", lambda data: data),
    "a default": lambda: _columns(ColumnSettings("a", "jsonb", ("a",), default="{}")),
}


# Arrow's buffers keep a pointer to the pool that they came from.
_POOLS: list[pa.MemoryPool] = []


def _peak_bytes(pipeline: Pipeline, records: pa.RecordBatch) -> int:
    """What Python and Arrow hold at most beside the records; each at its own peak, so rather too much."""
    pool, usual = pa.proxy_memory_pool(pa.system_memory_pool()), pa.default_memory_pool()
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        pipeline.load(records)
        return tracemalloc.get_traced_memory()[1] + int(pool.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)


def _pipeline(name: str) -> Pipeline:
    if name in OTHERS:
        return OTHERS[name]()
    type_name, _, conversion = name.partition(" as ")
    return _columns(ColumnSettings("a", type_name, ("a",), conversion=Conversion(conversion) if conversion else None))


@pytest.mark.parametrize("name", [*TYPES, *OTHERS])
def test_time_grows_no_more_than_the_record(name: str) -> None:
    pipeline = _pipeline(name)
    found = {what: growth(pipeline.load, lambda size: pipeline.record_of(of(size))) for what, of in HOSTILE.items()}  # noqa: B023
    assert {what: times for what, times in found.items() if times >= MOST_GROWTH} == {}


@pytest.mark.parametrize(
    "name", ["text", "numeric", "jsonb", "uuid", "text[]", "numeric[]", "bytea[]", *CONVERTED, *OTHERS]
)
def test_memory_is_a_few_times_the_record(name: str) -> None:
    pipeline = _pipeline(name)
    too_much = {}
    for what, of in HOSTILE.items():
        if (name, what) == ("header name", "NUL bytes"):
            continue  # each is stored as an escape of six characters
        records = pipeline.record_of(of(MEMORY_BYTES))
        peak = _peak_bytes(pipeline, records)
        most = MORE_TIMES_THE_RECORD.get(name, MOST_TIMES_THE_RECORD)
        if peak > most * records.nbytes + CONSTANT_BYTES:
            too_much[what] = peak / records.nbytes
    assert too_much == {}


def test_many_headers_take_a_few_times_their_bytes() -> None:
    for pipeline in (_header("value"), _header_column("text"), _columns(ColumnSettings("a", "boolean", ("a",)))):
        for headers_of in (_many_headers, _many_of_one_name):
            records = headers_of(4 * MEMORY_BYTES)
            assert growth(pipeline.load, headers_of) < MOST_GROWTH
            assert _peak_bytes(pipeline, records) < MOST_TIMES_THE_RECORD * records.nbytes + CONSTANT_BYTES
