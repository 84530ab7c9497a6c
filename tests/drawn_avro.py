"""Avro schemas and values that hypothesis draws and fastavro writes, and what a document must say of each value."""

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
from hypothesis import strategies as st

from spark_jobs.decode.values import INFINITY_NUMBER, NAN_NUMBER, NEGATIVE_INFINITY_NUMBER

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
    return record_of({name: draw(of) for name in names})


def record_of(fields: Mapping[str, Drawn]) -> Drawn:
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
