"""Values of Avro that are no containers, many at once: read from bytes, and written as JSON.

Protobuf's quick way shares the second half.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.record_bytes import Cursor, Numbers, RecordBytes
from spark_jobs.decode.values import MOST_DECIMAL_BYTES, QuickColumn, invalid_utf8_rows, positions

if TYPE_CHECKING:
    from spark_jobs.decode.avro_schema import AvroType


def category(of: AvroType) -> str:
    """Return what the values of a type are read as: its meaning, or its kind where numbers and texts are one each."""
    return of.meaning or {"int": "integer", "long": "integer", "enum": "string", "fixed": "bytes"}.get(of.kind, of.kind)


# The values of each kind that is no container: numbers, or an Arrow array.


def _null(_data: RecordBytes, _of: AvroType, cursor: Cursor) -> Any:
    return cursor.at


def _boolean(data: RecordBytes, _of: AvroType, cursor: Cursor) -> Any:
    byte = data.words("|u1", data.skip(cursor, 1))
    data.fail(cursor, byte > 1)
    return byte == 1


def _integer(data: RecordBytes, of: AvroType, cursor: Cursor) -> Any:
    numbers = data.number(cursor)
    if of.kind == "int":
        data.fail(cursor, (numbers < -(2**31)) | (numbers >= 2**31))
    return numbers


def _float(data: RecordBytes, of: AvroType, cursor: Cursor) -> Any:
    size = 4 if of.kind == "float" else 8
    return data.words(f"<f{size}", data.skip(cursor, size))


def _enum(data: RecordBytes, of: AvroType, cursor: Cursor) -> Any:
    index = data.number(cursor)
    is_unknown = (index < 0) | (index >= len(of.symbols))
    data.fail(cursor, is_unknown)
    return pa.array(of.symbols or [""], pa.string()).take(pa.array(np.where(is_unknown, 0, index)))


def _bytes(data: RecordBytes, of: AvroType, cursor: Cursor) -> Any:
    """Return a binary array; of decimals the numbers, as far as they have 64 bits, and the sizes."""
    begin = data.skip(cursor, of.size if of.kind == "fixed" else data.number(cursor))
    if of.meaning != "decimal":
        return data.slices(begin, cursor.at)
    end = cursor.at
    data.fail(cursor, (end == begin) | (end - begin > MOST_DECIMAL_BYTES))
    return unscaled(data, begin, end)


def unscaled(data: RecordBytes, begin: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
    """Return the numbers of decimals between positions, as far as they have 64 bits, and their sizes in bytes."""
    size = end - begin
    return data.words(">u8", begin).astype(np.int64) >> (8 * np.clip(8 - size, 0, 7)), size


def _string(data: RecordBytes, of: AvroType, cursor: Cursor) -> Any:
    return checked_texts(data, cursor, _bytes(data, of, cursor))


def checked_texts(data: RecordBytes, cursor: Cursor, array: pa.Array) -> pa.Array:
    """Return bytes of records as texts; a record where they are no UTF-8 becomes bad."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        mask = np.zeros(len(array), np.bool_)
        mask[invalid_utf8_rows(array.cast(pa.large_binary()))] = True
        data.fail(cursor, mask)
        return pc.if_else(pa.array(mask), b"", array).cast(pa.string())


_READERS: Mapping[str, Callable[[RecordBytes, AvroType, Cursor], Any]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer,
    "long": _integer,
    "float": _float,
    "double": _float,
    "enum": _enum,
    "bytes": _bytes,
    "fixed": _bytes,
    "string": _string,
}


def is_leaf(of: AvroType) -> bool:
    """Tell whether :func:`read_leaf` reads a type."""
    return of.kind in _READERS and of.meaning != "duration"


def read_leaf(data: RecordBytes, of: AvroType, cursor: Cursor) -> Any:
    """Read one value of each record: numbers, or an Arrow array; of decimals the numbers and their sizes in bytes.

    A record whose bytes are no such value becomes bad. One that ends inside a number shows it only by its position.
    """
    return _READERS[of.kind](data, of, cursor)


# The values of a leaf as JSON, as the exact way writes them.

#: Arrow writes decimals of more digits after the point with an exponent, where they are small.
_MOST_PLAIN_SCALE = 6

_DAY = 86_400
#: 0001-01-01 and the day after 9999-12-31, in seconds since 1970.
_FIRST, _AFTER_LAST = -62_135_596_800, 253_402_300_800


def _null_json(_of: AvroType, values: Any) -> QuickColumn:
    return QuickColumn(pa.repeat(pa.scalar("null"), len(values)))


def _boolean_json(_of: AvroType, values: Any) -> QuickColumn:
    return QuickColumn(pc.if_else(pa.array(values), "true", "false"))


def _integer_json(_of: AvroType, values: Any) -> QuickColumn:
    return QuickColumn(pa.array(values).cast(pa.string()))


def _string_json(_of: AvroType, values: Any) -> QuickColumn:
    escaped = positions(pc.match_substring_regex(values, r'["\\\x00-\x1f\x7f]'))
    return QuickColumn(_quoted(values), escaped)


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _decimal_json(of: AvroType, values: Any) -> QuickColumn | None:
    """Take decimals of at most 64 bits."""
    if not 0 <= of.digits <= _MOST_PLAIN_SCALE:
        return None
    numbers, sizes = values
    halves = np.stack((numbers, numbers >> 63), axis=1)
    decimals = pa.Array.from_buffers(pa.decimal128(38, of.digits), len(numbers), [None, pa.py_buffer(halves)])
    return QuickColumn(decimals.cast(pa.string()), np.flatnonzero(sizes > 8).tolist())


def _time_json(of: AvroType, values: Any) -> QuickColumn:
    texts = time_texts(of, values)
    return QuickColumn(_quoted(texts.array), texts.doubtful)


def time_texts(of: AvroType, values: Numbers) -> QuickColumn:
    """Return dates and times as texts; doubtful outside the day or the years 1 to 9999, and within a microsecond."""
    first, after_last = (0, _DAY) if of.meaning == "time" else (_FIRST, _AFTER_LAST)
    if of.meaning == "date":
        first, after_last = first // _DAY, after_last // _DAY
    doubtful = (values < first * 10**of.digits) | (values >= after_last * 10**of.digits)
    if of.digits == 9:
        doubtful |= values % 1_000 != 0
        values = values // 1_000
    units = pa.array(np.where(doubtful, 0, values))
    return QuickColumn(_TIMES[of.meaning](units, "ms" if of.digits == 3 else "us"), np.flatnonzero(doubtful).tolist())


def _date_texts(days: pa.Array, _unit: str) -> pa.Array:
    return days.cast(pa.int32()).cast(pa.date32()).cast(pa.string())


def _day_texts(units: pa.Array, unit: str) -> pa.Array:
    kind = (pa.int32(), pa.time32("ms")) if unit == "ms" else (pa.int64(), pa.time64("us"))
    return units.cast(kind[0]).cast(kind[1]).cast(pa.string())


def _local_texts(units: pa.Array, unit: str) -> pa.Array:
    return _iso_texts(units, unit, b"")


def _instant_texts(units: pa.Array, unit: str) -> pa.Array:
    return _iso_texts(units, unit, b"Z")


def _iso_texts(units: pa.Array, unit: str, zone: bytes) -> pa.Array:
    """Write timestamps of the years 1 to 9999, all of one length. Arrow takes ten times as long with a zone."""
    written = units.cast(pa.timestamp(unit)).cast(pa.string()).buffers()[2]
    size = (23 if unit == "ms" else 26) + len(zone)
    texts = np.empty((len(units), size), np.uint8)
    texts[:, : size - len(zone)] = np.frombuffer(written, np.uint8).reshape(len(units), -1)
    texts[:, 10] = ord("T")
    texts[:, size - len(zone) :] = np.frombuffer(zone, np.uint8)
    ends = np.arange(0, texts.size + 1, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(units), [None, pa.py_buffer(ends), pa.py_buffer(texts)])


_TIMES: Mapping[str, Callable[[pa.Array, str], pa.Array]] = {
    "date": _date_texts,
    "time": _day_texts,
    "local": _local_texts,
    "instant": _instant_texts,
}

_JSON_MAKERS: Mapping[str, Callable[[AvroType, Any], QuickColumn | None]] = {
    "null": _null_json,
    "boolean": _boolean_json,
    "integer": _integer_json,
    "string": _string_json,
    "decimal": _decimal_json,
    **dict.fromkeys(_TIMES, _time_json),
}


def leaf_json(of: AvroType, values: Any) -> QuickColumn | None:
    """Return what :func:`read_leaf` read as JSON; ``None`` where only the exact way writes it."""
    make = _JSON_MAKERS.get(category(of))
    return make(of, values) if make else None
