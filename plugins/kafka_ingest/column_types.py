"""The PostgreSQL column types that a pipeline can fill, their one spelling, and which values fit them.

The spelling is that of PostgreSQL's ``format_type``, so a type of a pipeline file can be compared with the catalog as
text (https://www.postgresql.org/docs/18/datatype.html).
"""

from __future__ import annotations

import binascii
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from itertools import chain


@dataclass(frozen=True, slots=True)
class TypeRow:
    """One type that columns may have: a row of the table below.

    Attributes:
        name: Name in PostgreSQL's canonical spelling.
        docs: Which JSON values fit, by the spellings that the reference page shows, the usual one first.
        others: Other spellings that PostgreSQL and its users know.
        told: What messages call it; by default the usual spellings.
        held_by: Other types whose columns hold its values, as far as their numbers in brackets allow.
        has_arrays: Whether its arrays are supported.
    """

    name: str
    docs: Mapping[str, str]
    others: tuple[str, ...] = ()
    told: str = ""
    held_by: tuple[str, ...] = ()
    has_arrays: bool = True

    @property
    def spellings(self) -> Iterator[str]:
        """Every spelling, without numbers in brackets."""
        yield from (self.name, *self.others)
        yield from (shown.partition("(")[0] for shown in ", ".join(self.docs).split(", "))

    def __str__(self) -> str:
        return self.told or ", ".join(shown.split(", ")[0] for shown in self.docs)


_WHOLE = "`1.0` and `1e2` are whole"
_NAN = "not NaN or infinity, which JSON does not have"
_FLOAT = "a number that the nearest float of {} bytes names exactly (its shortest decimal, or {} digits); " + _NAN
_NUMERIC = {
    "numeric, decimal": "a number, or a string with a decimal number; every digit is kept",
    "numeric(p,s), decimal(p,s)": "the same, with at most p - s digits before the point and s after it, not counting "
    "zeros at the end",
}
_TEXT = "a string, without the character U+0000, which PostgreSQL cannot store"
_VARCHAR = {"varchar(n), character varying(n), varchar": "the same, with at most n characters; nothing is cut off"}
_TIME = "an ISO 8601 string with at most microseconds"
_TIMESTAMP = {"timestamp, timestamp without time zone": f"{_TIME} and no offset, `2026-01-31T13:45:00`"}
_TIMESTAMPTZ = {
    "timestamptz, timestamp with time zone": f"{_TIME} and an offset, `2026-01-31T13:45:00+01:00` or `...Z`"
}
_JSONB = "any JSON value but null, which is NULL; without U+0000 in its texts"

#: Every supported type. How its values are decoded stands in ``spark_jobs/decode``.
SUPPORTED = (
    TypeRow("boolean", {"boolean, bool": "`true` or `false`; not 0, 1 or a string"}),
    TypeRow(
        "smallint", {"smallint, int2": f"a whole number from -32768 to 32767; {_WHOLE}"}, held_by=("integer", "bigint")
    ),
    TypeRow(
        "integer",
        {"integer, int, int4": f"a whole number from -2147483648 to 2147483647; {_WHOLE}"},
        held_by=("bigint",),
    ),
    TypeRow("bigint", {"bigint, int8": f"a whole number of 64 bits, exactly, also beyond 2^53; {_WHOLE}"}),
    TypeRow("real", {"real, float4": _FLOAT.format(4, 9)}),
    TypeRow("double precision", {"double precision, float8, float": _FLOAT.format(8, 17)}),
    TypeRow("numeric", _NUMERIC, ("dec",)),
    TypeRow("text", {"text": _TEXT}, held_by=("character varying",)),
    TypeRow("character varying", _VARCHAR, ("char varying",), told="varchar, varchar(n)", held_by=("text",)),
    TypeRow("date", {"date": "an ISO 8601 string, `2026-01-31`"}),
    TypeRow("time without time zone", {"time": f"{_TIME} and no offset, `13:45:00.123456`"}),
    TypeRow("timestamp without time zone", _TIMESTAMP),
    TypeRow("timestamp with time zone", _TIMESTAMPTZ),
    TypeRow("uuid", {"uuid": "a string of 32 hexadecimal digits, as 8-4-4-4-12 or without hyphens"}),
    # jsonb holds arrays itself; in a jsonb[] a JSON null could mean an SQL NULL or the value null.
    TypeRow("jsonb", {"jsonb": _JSONB}, has_arrays=False),
    TypeRow("bytea", {"bytea": "a string in base64"}),
)
_BY_SPELLING = {spelling: row for row in SUPPORTED for spelling in row.spellings}

SUPPORTED_TYPES = ", ".join(map(str, SUPPORTED)) + ", and an array of any of them but jsonb, such as bigint[]"

#: Types that hold parts of a second.
FINE_TIMES = ("time without time zone", "timestamp without time zone", "timestamp with time zone")
_DATES = ("date", "timestamp without time zone", "timestamp with time zone")
_NUMBERS = ("smallint", "integer", "bigint", "real", "double precision")

#: Types whose values can be equal and have different texts, or have no order at all: no key of an upsert target.
NEVER_EQUAL_TEXTS = frozenset({"real", "double precision", "jsonb"})
#: Types in which a greater value means a newer record.
ORDERED_TYPES = frozenset(
    {*_NUMBERS, "numeric", "date", "time without time zone", "timestamp without time zone", "timestamp with time zone"}
)

#: Each conversion (``settings.Conversion``): the types of its columns, and which JSON values fit.
CONVERSIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "epoch_seconds": (_DATES, "a number: seconds since 1970, also with digits after the point"),
    "epoch_millis": (_DATES, "a number: milliseconds since 1970"),
    "epoch_micros": (_DATES, "a number: microseconds since 1970"),
    "epoch_nanos": (_DATES, "a number: nanoseconds since 1970, whose last three digits are zeros"),
    "epoch_days": (_DATES, "a number: days since 1970"),
    "number_text": ((*_NUMBERS, "numeric"), 'a string that holds a number which fits the type, `"42"`'),
    "json_text": (("jsonb",), "a string that holds a JSON document; its text `null` is the jsonb value null"),
    "hex": (("bytea",), "a string of hexadecimal digits, two a byte, without a prefix"),
    "base64": (("bytea",), "a string in base64, as without `as`"),
}


def types_of(conversion: str) -> str:
    """List the types that a conversion is for, in their usual spelling."""
    return ", ".join(str(_BY_SPELLING[name]) for name in CONVERSIONS[conversion][0])


#: Columns that only staging tables have.
STAGING_COLUMNS = frozenset({"stage_missing", "stage_may_be_null", "stage_task", "stage_attempt"})
#: Columns that every table has (https://www.postgresql.org/docs/18/ddl-system-columns.html), and those of staging.
RESERVED_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", *STAGING_COLUMNS})
#: NAMEDATALEN - 1; PostgreSQL would cut a longer name, and two names could become one.
MAX_IDENTIFIER_BYTES = 63

# PostgreSQL's own bounds; a negative scale or one above the precision exists only since PostgreSQL 15.
MAX_LENGTH = 10_485_760
MAX_PRECISION = 1_000

_SHAPE = re.compile(
    r"(?P<name>[a-z][a-z0-9 ]*?) ?(?:\( ?(?P<first>[0-9]{1,9}) ?(?:, ?(?P<second>[0-9]{1,9}) ?)?\))?"
    r"(?P<array> ?\[ ?\])?",
)


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column type.

    Attributes:
        name: Name without modifiers in PostgreSQL's canonical spelling (``character varying``, ``bigint``).
        precision: Total digits of a ``numeric(p,s)``.
        scale: Digits after the point of a ``numeric(p,s)``; set whenever ``precision`` is.
        length: Greatest number of characters of a ``character varying(n)``.
        is_array: Whether the column holds one-dimensional arrays; the other attributes then describe an element.
    """

    name: str
    precision: int | None = None
    scale: int | None = None
    length: int | None = None
    is_array: bool = False

    @property
    def sql(self) -> str:
        """The type as ``format_type`` spells it: ``character varying(20)``, ``numeric(10,2)``, ``bigint[]``."""
        modifier = ""
        if self.length is not None:
            modifier = f"({self.length})"
        elif self.precision is not None:
            modifier = f"({self.precision},{self.scale})"
        return f"{self.name}{modifier}{'[]' if self.is_array else ''}"

    @property
    def element(self) -> ColumnType:
        """The type of one element; the type itself when it is no array."""
        return ColumnType(self.name, self.precision, self.scale, self.length)


@cache
def parse_column_type(text: str) -> ColumnType:
    """Read a column type in any spelling that PostgreSQL knows for it; upper case and extra spaces do not matter.

    Raises:
        ValueError: The text is not a supported type; the message says what is supported.
    """
    shape = _SHAPE.fullmatch(" ".join(text.lower().split()))
    row = _BY_SPELLING.get(shape["name"]) if shape else None
    if shape is None or row is None:
        raise ValueError(f"one of the supported types: {SUPPORTED_TYPES}")
    first, second = (int(shape[part]) if shape[part] else None for part in ("first", "second"))
    is_array = shape["array"] is not None
    if is_array and not row.has_arrays:
        raise ValueError(
            f"a type that has arrays: a {row.name} column holds a JSON array itself, so {row.name} is enough"
        )
    if first is None:
        return ColumnType(row.name, is_array=is_array)
    return _with_modifier(row.name, first, second, is_array=is_array)


def _with_modifier(name: str, first: int, second: int | None, *, is_array: bool) -> ColumnType:
    if name == "character varying" and second is None:
        if not 1 <= first <= MAX_LENGTH:
            raise ValueError(f"varchar(n) with n from 1 to {MAX_LENGTH}")
        return ColumnType(name, length=first, is_array=is_array)
    if name == "numeric":
        scale = second or 0
        if not 1 <= first <= MAX_PRECISION or scale > first:
            raise ValueError(f"numeric(p,s) with p from 1 to {MAX_PRECISION} and s from 0 to p")
        return ColumnType(name, precision=first, scale=scale, is_array=is_array)
    raise ValueError(f"{name} without a number in brackets (only varchar(n) and numeric(p,s) take one)")


def can_hold(found: str, written: str) -> bool:
    """Whether a column of type ``found`` keeps every value of type ``written`` exactly.

    Equal types do. So do a wider integer, a numeric with at least as many digits on both sides of the point, and a
    longer or unlimited text. ``varchar(n)`` for ``text`` does not: PostgreSQL cuts spaces at the end silently.
    """
    if found == written:
        return True
    try:
        column, value = parse_column_type(found), parse_column_type(written)
    except ValueError:
        return False
    if column.is_array != value.is_array or column.name not in (value.name, *_BY_SPELLING[value.name].held_by):
        return False
    return _has_room_for_length(column, value) and _has_room_for_digits(column, value)


def _has_room_for_length(column: ColumnType, value: ColumnType) -> bool:
    return column.length is None or (value.length is not None and column.length >= value.length)


def _has_room_for_digits(column: ColumnType, value: ColumnType) -> bool:
    if column.precision is None or column.scale is None:
        return True
    if value.precision is None or value.scale is None:
        return False
    return column.scale >= value.scale and column.precision - column.scale >= value.precision - value.scale


def quoted_element(element: bytes) -> bytes:
    """Write an element of an array literal, whatever stands in it.

    Source: https://www.postgresql.org/docs/18/arrays.html, "Array Input and Output Syntax".
    """
    return b'"' + element.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


# Values of a pipeline file, which must fit their column exactly before a record is read.
#
# They are few and short, and no job is there yet: so the standard library alone checks them. What fits is what
# ``spark_jobs/decode`` reads; ``tests/properties/test_default_properties.py`` holds one against the other.

# https://www.postgresql.org/docs/18/datatype-numeric.html, table 8.2: digits before and after the decimal point.
_INTEGER_DIGITS, _SCALE = 131_072, 16_383

_NUMBER_TEXT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_UUID = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}")

_DATE = "(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
_CLOCK = r"(?P<clock>(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]{1,6}0*)?)?)"
_ZONE = "(?P<zone>[Zz]|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)"
_TIMES = {
    "date": re.compile(_DATE),
    "time without time zone": re.compile(_CLOCK),
    "timestamp without time zone": re.compile(f"{_DATE}[Tt ]{_CLOCK}"),
    "timestamp with time zone": re.compile(f"{_DATE}[Tt ]{_CLOCK}{_ZONE}"),
}


@dataclass(frozen=True, slots=True)
class _Number:
    """A JSON number, as it is written."""

    text: str

    @property
    def parts(self) -> tuple[str, int]:
        """The digits, without zeros before the first, and the power of ten of the last."""
        mantissa, _, exponent = self.text.lower().lstrip("+-").partition("e")
        whole, _, fraction = mantissa.partition(".")
        # A longer exponent is beyond every type: no file is large enough for digits that would make up for it.
        size = int((exponent.lstrip("+-0") or "0")[:12])
        return (whole + fraction).lstrip("0"), (-size if exponent.startswith("-") else size) - len(fraction)

    def fits(self, *, integer_digits: int, scale: int) -> bool:
        """Tell whether it has at most this many digits before and, but for zeros at the end, after the point."""
        digits, exponent = self.parts
        zeros = len(digits) - len(digits.rstrip("0"))
        return not digits or (len(digits) + exponent <= integer_digits and -(exponent + zeros) <= scale)


@dataclass(frozen=True, slots=True)
class _Object:
    """A JSON object: its keys and values, repeated ones included."""

    parts: tuple[object, ...]

    @classmethod
    def of(cls, pairs: list[tuple[str, object]]) -> _Object:
        return cls(tuple(chain.from_iterable(pairs)))


def check_value(column_type: ColumnType, text: str) -> None:
    """Check that a JSON value in the usual spelling of a type fits a column of it exactly.

    Raises:
        ValueError: It does not; the message says what does.
    """
    value = json.loads(text, parse_int=_Number, parse_float=_Number, object_pairs_hook=_Object.of)
    elements = value if column_type.is_array and isinstance(value, list) else [value]
    is_list = isinstance(value, list) or not column_type.is_array
    fits = _CHECKS[column_type.name]
    if not is_list or not all((column_type.is_array and e is None) or fits(column_type, e) for e in elements):
        raise ValueError(_what_fits(column_type))


def _what_fits(column_type: ColumnType) -> str:
    words = next(iter(_BY_SPELLING[column_type.name].docs.values())).replace("`", "")
    if column_type.name == "character varying":
        words = _TEXT
    if column_type.length is not None:
        words += f", with at most {column_type.length} characters"
    if column_type.precision is not None and column_type.scale is not None:
        words += f"; at most {column_type.precision - column_type.scale} digits before the point"
        words += f" and {column_type.scale} after it"
    return f"a default for {column_type.sql}: {'a list, each null or ' * column_type.is_array}{words}"


def _is_integer(column_type: ColumnType, value: object) -> bool:
    bits = {"smallint": 16, "integer": 32, "bigint": 64}[column_type.name]
    if not isinstance(value, _Number) or not value.fits(integer_digits=19, scale=0):
        return False
    digits, exponent = value.parts
    number = int(Decimal(f"{'-' * value.text.startswith('-')}{digits}e{exponent}")) if digits else 0
    return -(1 << bits - 1) <= number < 1 << bits - 1


def _is_numeric(column_type: ColumnType, value: object) -> bool:
    number = _Number(value) if isinstance(value, str) and _NUMBER_TEXT.fullmatch(value) else value
    if column_type.precision is None or column_type.scale is None:
        return isinstance(number, _Number) and number.fits(integer_digits=_INTEGER_DIGITS, scale=_SCALE)
    before = column_type.precision - column_type.scale
    return isinstance(number, _Number) and number.fits(integer_digits=before, scale=column_type.scale)


def _is_float(column_type: ColumnType, value: object) -> bool:
    """Tell whether a number names a float: its value, its shortest decimal, or one with all digits of the width."""
    if not isinstance(value, _Number):
        return False
    is_single = column_type.name == "real"
    cell = _single(float(value.text)) if is_single else float(value.text)
    if cell == 0 or not math.isfinite(cell):
        return not value.parts[0]
    names = [repr(cell), format(cell, ".17g")]
    if is_single:
        shortest = next(name for n in range(1, 10) if _single(float(name := format(cell, f".{n}g"))) == cell)
        names += [shortest, format(cell, ".9g")]
    return Decimal(value.text) in (Decimal(cell), *map(Decimal, names))


def _single(number: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.inf


def _is_text(column_type: ColumnType, value: object) -> bool:
    if not isinstance(value, str) or any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
        return False
    return column_type.length is None or len(value) <= column_type.length


def _is_time(column_type: ColumnType, value: object) -> bool:
    parts = _TIMES[column_type.name].fullmatch(value) if isinstance(value, str) else None
    if parts is None:
        return False
    given = {"date": "2000-01-01", "clock": "00:00", "zone": "Z"} | parts.groupdict("")
    to_seconds = given["clock"][: len("HH:MM:SS")]
    try:
        datetime.fromisoformat(f"{given['date']}T{to_seconds}{given['zone'].upper()}").astimezone(UTC)
    except (ValueError, OverflowError):  # no such day, or outside the years 1 to 9999 in UTC
        return False
    return True


def _is_base64(_: ColumnType, value: object) -> bool:
    try:
        data = binascii.a2b_base64(value, strict_mode=True) if isinstance(value, str) else None
    except ValueError:
        return False
    return data is not None and binascii.b2a_base64(data, newline=False).decode() == value


def _is_jsonb(column_type: ColumnType, value: object) -> bool:
    if isinstance(value, _Number):
        digits, exponent = value.parts
        return (not digits or len(digits) + exponent <= _INTEGER_DIGITS) and -exponent <= _SCALE
    if isinstance(value, list | _Object):
        parts = value if isinstance(value, list) else value.parts
        return all(part is None or _is_jsonb(column_type, part) for part in parts)
    return isinstance(value, bool) or _is_text(column_type, value)


_CHECKS: Mapping[str, Callable[[ColumnType, object], bool]] = {
    "boolean": lambda _, value: isinstance(value, bool),
    **dict.fromkeys(("smallint", "integer", "bigint"), _is_integer),
    **dict.fromkeys(("real", "double precision"), _is_float),
    "numeric": _is_numeric,
    **dict.fromkeys(("text", "character varying"), _is_text),
    **dict.fromkeys(_TIMES, _is_time),
    "uuid": lambda _, value: isinstance(value, str) and _UUID.fullmatch(value) is not None,
    "jsonb": _is_jsonb,
    "bytea": _is_base64,
}
