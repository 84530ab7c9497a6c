"""Drawn schemas and values, written by fastavro: what is read is what was drawn, and both ways read the same."""

from __future__ import annotations

import base64
import io
import itertools
import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.settings import Conversion
from spark_jobs.decode import avro_columns
from spark_jobs.decode.avro import AvroSchema
from spark_jobs.decode.json import JsonColumns
from spark_jobs.decode.values import (
    INFINITY_NUMBER,
    NAN_NUMBER,
    NEGATIVE_INFINITY_NUMBER,
    ColumnPlan,
    DecodeError,
    QuickColumn,
)

#: A value as fastavro writes it, and as the document must say it.
Pair = tuple[Any, Any]


@dataclass(frozen=True)
class Drawn:
    """A type with its values, and the columns that it is most often read into."""

    schema: Any
    pairs: st.SearchStrategy[Pair]
    columns: tuple[str, ...]
    fields: Mapping[str, Drawn] | None = None


NAMES = map("N{}".format, itertools.count())
SPECIAL = {
    "nan": Decimal(NAN_NUMBER.decode()),
    "inf": Decimal(INFINITY_NUMBER.decode()),
    "-inf": Decimal(NEGATIVE_INFINITY_NUMBER.decode()),
}
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(['"', "a", "\\", "null", "1e9999"])
EPOCH, EPOCH_DAY = datetime(1970, 1, 1), date(1970, 1, 1)  # noqa: DTZ001 - the drawn times have no zone


def same(value: Any) -> Pair:
    return value, value


def of_float(value: float) -> Pair:
    return value, Decimal(repr(value)) if math.isfinite(value) else SPECIAL[str(value)]


def simple(schema: Any, values: st.SearchStrategy[Any], pair: Callable[[Any], Pair], *columns: str) -> Drawn:
    return Drawn(schema, values.map(pair), columns)


def in_base64(value: bytes) -> Pair:
    return value, base64.b64encode(value).decode()


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def moments(name: str, digits: int, zone: str) -> Drawn:
    unit = 10 ** (6 - digits)
    spec = "milliseconds" if digits == 3 else "microseconds"

    def pair(moment: datetime) -> Pair:
        kept = moment.replace(microsecond=moment.microsecond // unit * unit)
        return microseconds(kept) // unit, kept.isoformat(timespec=spec) + zone

    column = "timestamptz" if zone else "timestamp"
    return Drawn({"type": "long", "logicalType": name}, st.datetimes().map(pair), (column,))


def nanos(name: str, zone: str) -> Drawn:
    def pair(drawn: tuple[datetime, int]) -> Pair:
        moment, more = drawn
        text = moment.isoformat(timespec="microseconds") + (f"{more:03d}" if more else "") + zone
        return microseconds(moment) * 1_000 + more, text

    of = st.tuples(st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)), st.just(0) | st.integers(0, 999))  # noqa: DTZ001
    return Drawn({"type": "long", "logicalType": name}, of.map(pair), ("timestamptz" if zone else "timestamp",))


def of_clock(digits: int) -> Callable[[time], Pair]:
    def pair(clock: time) -> Pair:
        seconds = (clock.hour * 60 + clock.minute) * 60 + clock.second
        parts = clock.microsecond // 10 ** (6 - digits)
        return seconds * 10**digits + parts, f"{clock:%H:%M:%S}.{parts:0{digits}d}"

    return pair


@st.composite
def decimals(draw: st.DrawFn) -> Drawn:
    precision = draw(st.integers(1, 30))
    scale = draw(st.integers(0, min(precision, 9)))
    size = draw(st.none() | st.just(13))
    base: dict[str, Any] = {"type": "bytes"} if size is None else {"type": "fixed", "name": next(NAMES), "size": size}
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1) | st.integers(-9, 9).filter(
        lambda number: abs(number) < 10**precision
    )
    pairs = unscaled.map(lambda number: same(Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))))
    return Drawn(
        {**base, "logicalType": "decimal", "precision": precision, "scale": scale}, pairs, ("numeric", "numeric(12,3)")
    )


@st.composite
def enums(draw: st.DrawFn) -> Drawn:
    symbols = draw(st.lists(st.sampled_from("abcdef"), min_size=1, unique=True))
    return simple({"type": "enum", "name": next(NAMES), "symbols": symbols}, st.sampled_from(symbols), same, "text")


@st.composite
def fixeds(draw: st.DrawFn) -> Drawn:
    size = draw(st.integers(0, 9))
    schema = {"type": "fixed", "name": next(NAMES), "size": size}
    return simple(schema, st.binary(min_size=size, max_size=size), in_base64, "bytea")


def logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


INTS = st.integers(-(2**31), 2**31 - 1) | st.integers(-200, 200)
LONGS = st.integers(-(2**63), 2**63 - 1) | INTS
PLAIN = (
    Drawn("null", st.just((None, None)), ("text",)),
    simple("boolean", st.booleans(), same, "boolean"),
    simple("int", INTS, same, "smallint", "integer", "bigint", "numeric", "real"),
    simple("long", LONGS, same, "integer", "bigint", "numeric(12,3)", "double precision"),
    simple("float", st.floats(width=32), of_float, "real", "double precision"),
    simple("double", st.floats() | st.floats(width=32), of_float, "double precision", "real"),
    simple("string", TEXTS, same, "text", "varchar(5)"),
    simple("string", st.dates().map(str) | st.datetimes().map(datetime.isoformat), same, "date", "timestamp"),
    simple(logical("string", "uuid"), st.uuids().map(str), same, "uuid", "text"),
    simple("bytes", st.binary(max_size=9), in_base64, "bytea"),
    Drawn(
        logical("int", "date"),
        st.dates().map(lambda day: ((day - EPOCH_DAY).days, day.isoformat())),
        ("date",),
    ),
    simple(logical("int", "time-millis"), st.times(), of_clock(3), "time"),
    simple(logical("long", "time-micros"), st.times(), of_clock(6), "time"),
    moments("timestamp-millis", 3, "Z"),
    moments("timestamp-micros", 6, "Z"),
    moments("local-timestamp-millis", 3, ""),
    moments("local-timestamp-micros", 6, ""),
    nanos("timestamp-nanos", "Z"),
    nanos("local-timestamp-nanos", ""),
)


def uuids_of_bytes() -> Drawn:
    schema = {"type": "fixed", "name": next(NAMES), "size": 16, "logicalType": "uuid"}
    return simple(schema, st.uuids(), lambda value: (value.bytes, str(value)), "uuid")


def durations() -> Drawn:
    def pair(parts: tuple[int, int, int]) -> Pair:
        return struct.pack("<III", *parts), dict(zip(("months", "days", "millis"), parts, strict=True))

    schema = {"type": "fixed", "name": next(NAMES), "size": 12, "logicalType": "duration"}
    return Drawn(schema, st.tuples(*[st.integers(0, 2**32 - 1)] * 3).map(pair), ("jsonb",))


LEAVES = st.one_of(
    st.sampled_from(PLAIN), decimals(), enums(), fixeds(), st.builds(uuids_of_bytes), st.builds(durations)
)


def array_of(item: Drawn) -> Drawn:
    pairs = st.lists(item.pairs, max_size=20 if item.schema == "int" else 3)
    # Items that take no bytes are refused.
    if item.schema == "null" or "'size': 0" in str(item.schema) or item.fields is not None:
        pairs = st.just([])
    return Drawn({"type": "array", "items": item.schema}, pairs.map(unzipped), ("jsonb", "integer[]"))


def unzipped(pairs: list[Pair]) -> Pair:
    return [value for value, _ in pairs], [expected for _, expected in pairs]


def map_of(values: Drawn) -> Drawn:
    pairs = st.dictionaries(TEXTS, values.pairs, max_size=3)
    return Drawn({"type": "map", "values": values.schema}, pairs.map(unzipped_map), ("jsonb",))


def unzipped_map(pairs: dict[str, Pair]) -> Pair:
    return {key: pair[0] for key, pair in pairs.items()}, {key: pair[1] for key, pair in pairs.items()}


@st.composite
def nullable(draw: st.DrawFn, of: st.SearchStrategy[Drawn]) -> Drawn:
    some = draw(of)
    if some.schema == "null" or isinstance(some.schema, list):
        return some
    branches = draw(st.permutations(["null", some.schema]))
    return Drawn(branches, st.just((None, None)) | some.pairs, some.columns, some.fields)


def other_union(some: Drawn) -> Drawn:
    """Add branches that fastavro tells from each other by the value alone."""
    branches = ["boolean", "null", "long", {"type": "map", "values": some.schema}]
    values = st.booleans().map(same) | st.just((None, None)) | LONGS.map(same) | map_of(some).pairs
    return Drawn(branches, values, ("jsonb", "bigint", "boolean"))


@st.composite
def records(draw: st.DrawFn, of: st.SearchStrategy[Drawn]) -> Drawn:
    names = draw(st.lists(st.sampled_from(["a", "b", "c", "d", "ä"]), max_size=4, unique=True))
    fields = {name: draw(of) for name in names}
    schema = {
        "type": "record",
        "name": next(NAMES),
        "fields": [{"name": name, "type": field.schema} for name, field in fields.items()],
    }
    pairs = st.fixed_dictionaries({name: field.pairs for name, field in fields.items()}).map(unzipped_map)
    return Drawn(schema, pairs, ("jsonb",), fields)


def deeper(of: st.SearchStrategy[Drawn]) -> st.SearchStrategy[Drawn]:
    return records(of) | of.map(array_of) | of.map(map_of) | nullable(of) | of.map(other_union)


TYPES = st.recursive(LEAVES | nullable(LEAVES), deeper, max_leaves=6)
RECORDS = records(st.one_of(LEAVES, nullable(LEAVES), TYPES))


def written(schema: Any, value: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, parsed(schema), value)
    return file.getvalue()


def parsed(schema: Any) -> Any:
    """Parse a schema without logical times: fastavro takes their numbers for text otherwise."""
    return fastavro.parse_schema(json.loads(json.dumps(schema)), _force=True)


def numbers_as_decimals(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: numbers_as_decimals(each) for key, each in value.items()}
    if isinstance(value, list):
        return [numbers_as_decimals(each) for each in value]
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return str(Decimal(value)) if is_number else value


@given(TYPES.flatmap(lambda of: st.tuples(st.just(of.schema), of.pairs)))
def test_a_document_says_what_was_written(drawn: tuple[Any, Pair]) -> None:
    schema, (value, expected) = drawn
    (document,) = AvroSchema(json.dumps(schema)).documents([written(schema, value)])
    assert not isinstance(document, DecodeError)
    found = json.loads(document, parse_float=Decimal)
    assert numbers_as_decimals(found) == numbers_as_decimals(expected)


ANY_COLUMN = (
    *("boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric", "numeric(5,1)", "text"),
    *("varchar(3)", "date", "time", "timestamp", "timestamptz", "uuid", "bytea", "jsonb", "integer[]", "text[]"),
)
CONVERSIONS = ((Conversion.EPOCH_MILLIS, "timestamptz"), (Conversion.NUMBER_TEXT, "numeric"), (Conversion.HEX, "bytea"))


@st.composite
def columns_of(draw: st.DrawFn, record: Drawn) -> list[ColumnPlan]:
    paths: list[tuple[tuple[str, ...], tuple[str, ...]]] = [(("missing",), ("text",))]
    todo: list[tuple[tuple[str, ...], Drawn]] = [((), record)]
    while todo:
        path, of = todo.pop()
        for name, field in (of.fields or {}).items():
            paths.append(((*path, name), field.columns))
            todo.append(((*path, name), field))
    plans = []
    for number, (path, likely) in enumerate(draw(st.permutations(paths))):
        conversion, name = draw(
            st.sampled_from([(None, name) for name in likely])
            | st.sampled_from([(None, name) for name in ANY_COLUMN])
            | st.sampled_from(CONVERSIONS)
            if draw(st.integers(0, 3)) == 0
            else st.sampled_from([(None, name) for name in likely])
        )
        others = draw(st.lists(st.sampled_from([path for path, _ in paths]), max_size=1))
        kind = parse_column_type(name)
        plans.append(ColumnPlan(f"c{number}", kind, path, conversion=conversion, other_paths=tuple(others)))
    return plans


@st.composite
def damaged(draw: st.DrawFn, payload: bytes, others: list[bytes]) -> bytes:
    match draw(st.integers(0, 3)):
        case 0 if payload:
            place, bit = draw(st.integers(0, len(payload) - 1)), draw(st.integers(0, 7))
            return payload[:place] + bytes([payload[place] ^ 1 << bit]) + payload[place + 1 :]
        case 1:
            return payload[: draw(st.integers(0, len(payload)))]
        case 2:
            return payload + draw(st.sampled_from(others) | st.binary(max_size=3))
    place = draw(st.integers(0, len(payload)))
    return payload[:place] + draw(st.binary(min_size=1, max_size=11)) + payload[place:]


@st.composite
def groups(draw: st.DrawFn) -> tuple[Any, list[bytes], list[ColumnPlan]]:
    record = draw(RECORDS)
    values = draw(st.lists(record.pairs, min_size=1, max_size=6))
    payloads = [written(record.schema, value) for value, _ in values]
    some = [draw(damaged(payload, payloads)) if draw(st.integers(0, 3)) == 0 else payload for payload in payloads]
    return record.schema, some, draw(columns_of(record))


def both_ways(schema: AvroSchema, payloads: list[bytes], plans: list[ColumnPlan]) -> tuple[list[Any], list[Any] | None]:
    """Return the rows of both ways; ``None`` for one that is refused, or doubtful."""
    documents = schema.documents(payloads)
    fits = [document if isinstance(document, bytes) else b"" for document in documents]
    part = JsonColumns(plans, quick=False).decode(pa.array(fits, pa.large_binary()))
    rows = list(zip(*(array.to_pylist() for array in part.arrays), strict=True))
    exact = [None if number in part.decode_errors else repr(row) for number, row in enumerate(rows)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_columns, "FEWEST_RECORDS", 1)
        columns = avro_columns.quick_columns(schema, payloads, plans)
        # A frame, and a row before and behind them that the array leaves out.
        framed = pa.array([b"x", *(b"frame" + payload for payload in payloads), b"y"], pa.large_binary())[1:-1]
        behind_frames = avro_columns.quick_columns(schema, framed, plans, skip=5)
    if columns is None or behind_frames is None:
        assert columns is behind_frames
        return exact, None
    for column, array in zip(columns, part.arrays, strict=True):
        assert column.array.type == array.type
        assert column.array.validate(full=True) is None
    quick = rows_of(columns)
    assert rows_of(behind_frames) == quick
    return exact, quick


def rows_of(columns: list[QuickColumn]) -> list[str | None]:
    doubtful = {row for column in columns for row in column.doubtful}
    rows = zip(*(column.array.to_pylist() for column in columns), strict=True)
    return [None if number in doubtful else repr(row) for number, row in enumerate(rows)]


@given(groups())
def test_the_quick_way_reads_what_the_exact_way_reads(group: tuple[Any, list[bytes], list[ColumnPlan]]) -> None:
    schema, payloads, plans = group
    exact, quick = both_ways(AvroSchema(json.dumps(schema)), payloads, plans)
    for slow, fast in zip(exact, quick or exact, strict=True):
        assert fast in (None, slow)


@given(st.data())
def test_bytes_that_are_no_record_are_never_one(data: st.DataObject) -> None:
    record = data.draw(RECORDS)
    schema = AvroSchema(json.dumps(record.schema))
    payloads = data.draw(st.lists(st.binary(max_size=30), min_size=1, max_size=5))
    exact, quick = both_ways(schema, payloads, data.draw(columns_of(record)))
    for slow, fast in zip(exact, quick or exact, strict=True):
        assert fast in (None, slow)
