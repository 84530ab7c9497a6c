"""Values of Protobuf as what msgspec writes: single values, and the messages that have a meaning of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from math import copysign
from typing import Any

import msgspec

from spark_jobs.decode.numbers import decimal_text, float_number

#: Reads a value, or a message, as what msgspec writes.
Read = Callable[[Any], Any]

# Single values.

#: Whole doubles up to here have no neighbour between them and the next whole number.
_WHOLE_DOUBLES = 2**53


def _struct_number(value: float) -> float | int | msgspec.Raw:
    """Write a number of a Struct, which has doubles only, as JSON's usual spelling: 5 and not 5.0."""
    if not value.is_integer() or abs(value) >= _WHOLE_DOUBLES or (not value and copysign(1, value) < 0):
        return float_number(value)
    return int(value)


# Messages with a meaning of their own, written as Protobuf's JSON has them.

_NANOS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC; Z is written
#: 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z, in seconds since 1970: the times that a Timestamp may be.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
#: Every other path would be another one when a reader turns the text back.
_SNAKE_CASE, _UNDERSCORE = re.compile(r"(?:[a-z0-9.]|_[a-z])++"), re.compile("_([a-z])")


def _fraction(nanos: int) -> str:
    """Return the digits behind a second, 0, 3, 6 or 9 of them."""
    if not nanos:
        return ""
    digits = f".{nanos:09}"
    return digits.removesuffix("000").removesuffix("000")


def _timestamp(message: Any) -> str:
    return timestamp_text(message.seconds, message.nanos)


def is_time(seconds: Any, nanos: Any) -> Any:
    """Tell of numbers, or of arrays of them, whether they are a Timestamp."""
    return (seconds >= _FIRST_SECOND) & (seconds <= _LAST_SECOND) & (nanos >= 0) & (nanos < _NANOS)


def timestamp_text(seconds: int, nanos: int) -> str:
    """Write ISO 8601; what is no Timestamp becomes a text that no column of times takes, with both its numbers."""
    if not is_time(seconds, nanos):
        return f"{seconds} s and {nanos} ns since 1970"
    minute, second = divmod(seconds, 60)
    return f"{_minute(minute)}:{second:02}{_fraction(nanos)}Z"


@lru_cache(4_096)  # most times of a batch are close together
def _minute(number: int) -> str:
    return (_EPOCH + timedelta(minutes=number)).isoformat(timespec="minutes")


def _duration(message: Any) -> str:
    seconds, nanos = message.seconds, message.nanos
    if abs(nanos) >= _NANOS or seconds * nanos < 0:
        return f"{seconds} s and {nanos} ns"
    sign = "-" if seconds < 0 or nanos < 0 else ""
    return f"{sign}{abs(seconds)}{_fraction(abs(nanos))}s"


def _field_mask(message: Any) -> str | list[str]:
    """Write the paths as one text, or as a list where that text would name others."""
    paths = [path.decode() for path in message.paths]
    if not all(map(_SNAKE_CASE.fullmatch, paths)):
        return paths
    return ",".join(_UNDERSCORE.sub(lambda letter: letter[1].upper(), path) for path in paths)


def _value(message: Any) -> Any:
    match message.WhichOneof("kind"):
        case "number_value":
            return _struct_number(message.number_value)
        case "string_value":
            return message.string_value.decode()
        case "bool_value":
            return message.bool_value
        case "struct_value":
            return _struct(message.struct_value)
        case "list_value":
            return _list_value(message.list_value)
    return None


def _struct(message: Any) -> dict[str, Any]:
    return {entry.key.decode(): _value(entry.value) for entry in message.fields}


def _list_value(message: Any) -> list[Any]:
    return [_value(value) for value in message.values]


def decimal_number(message: Any) -> msgspec.Raw:
    """Write a number with all its digits; its precision says nothing more."""
    return msgspec.Raw(decimal_text(message.value, message.scale))


OF_MESSAGES: Mapping[tuple[str, str], Read] = {
    ("timestamp", "Timestamp"): _timestamp,
    ("duration", "Duration"): _duration,
    ("field_mask", "FieldMask"): _field_mask,
    ("struct", "Struct"): _struct,
    ("struct", "Value"): _value,
    ("struct", "ListValue"): _list_value,
}
