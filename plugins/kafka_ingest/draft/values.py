"""JSON values as a draft reads them: exact numbers, strict spellings, and what PostgreSQL cannot hold.

The rules are those of ``spark_jobs/decode``, or stricter: what is recognised here loads there. Tests compare the two.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, NoReturn

# Documents.


class Number(str):
    """A JSON number, as it is written."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON document.

    Attributes:
        value: Objects as dicts, arrays as lists, numbers as :class:`Number`, the rest as Python has it.
        is_plain: Whether nothing in it is such that jsonb cannot hold it.
    """

    value: Any
    is_plain: bool


#: As deep as the job reads (``spark_jobs/decode/documents.py``).
_MAX_NESTING = 512
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)
#: A document without any of these has nothing that jsonb cannot hold: numbers beyond numeric's limits have four digits
#: of exponent, or with three of them more than 15,000 digits.
_ODD = re.compile(r"\\u0000|\\u[dD][89a-fA-F]|[eE][+-]?[0-9]{4}|(?<![0-9.])[0-9.]{15000}")


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_refuse)
_WHITE_SPACE = " \t\r\n"


def read_document(data: bytes) -> Document | None:
    """Read bytes as one JSON document; ``None`` for bytes that the job would not read as JSON."""
    try:
        text = data.decode("utf-8").strip(_WHITE_SPACE)
        if _is_too_deep(text):
            return None
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return Document(value, not _ODD.search(text) or is_storable(value))


def _is_too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= _MAX_NESTING:
        return False
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        depth += (match[0][0] in "[{") - (match[0][0] in "]}")
        if depth > _MAX_NESTING:
            return True
    return False


# What PostgreSQL cannot hold.

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_NUMBER = re.compile(r"-?([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
# https://www.postgresql.org/docs/18/datatype-numeric.html, table 8.2: digits before and after the decimal point.
_MAX_INTEGER_DIGITS, _MAX_SCALE = 131_072, 16_383


def is_text(text: str) -> bool:
    """Tell whether a text column can hold a text: without U+0000 and lone surrogates."""
    return not _UNSTORABLE.search(text)


def is_numeric(number: str) -> bool:
    """Tell whether a numeric column, and jsonb, can hold a number. Strict: zeros at its end count."""
    if len(number) < 6:
        return True
    parts = _NUMBER.fullmatch(number)
    if not parts or len(parts[3] or "") > 8:
        return False
    exponent = int(parts[3] or "0")
    return len(parts[1]) + exponent <= _MAX_INTEGER_DIGITS and len(parts[2] or "") - exponent <= _MAX_SCALE


def is_storable(value: Any) -> bool:
    """Tell whether jsonb can hold a value, members' names included."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left += item.keys()
            left += item.values()
        elif isinstance(item, list):
            left += item
        elif isinstance(item, str) and not (is_numeric(item) if isinstance(item, Number) else is_text(item)):
            return False
    return True


# Texts that spell something else.


class Spelling(StrEnum):
    """What all texts of a field may be, the likeliest first."""

    TIMESTAMPTZ = "timestamptz"
    TIMESTAMP = "timestamp"
    DATE = "date"
    TIME = "time"
    UUID = "uuid"
    WHOLE = "a whole number"
    DECIMAL = "a decimal number"
    JSON = "JSON"
    HEX = "hex"
    BASE64 = "base64"
    FINER_TIMESTAMPTZ = "a timestamptz with nanoseconds"
    FINER_TIMESTAMP = "a timestamp with nanoseconds"
    FINER_TIME = "a time with nanoseconds"


_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_SECONDS = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_TIME = rf"{_SECONDS}(?:\.[0-9]{{1,6}})?"
_FINER = rf"{_SECONDS}(?:\.[0-9]{{1,9}})?"
_OFFSET = "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_SHAPES: Mapping[Spelling, re.Pattern[str]] = {
    Spelling.TIMESTAMPTZ: re.compile(rf"{_DATE}[T ]{_TIME}{_OFFSET}"),
    Spelling.TIMESTAMP: re.compile(rf"{_DATE}[T ]{_TIME}"),
    Spelling.DATE: re.compile(_DATE),
    Spelling.TIME: re.compile(_TIME),
    Spelling.UUID: re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    Spelling.WHOLE: re.compile("-?[1-9][0-9]{0,17}|0"),  # a bigint, without zeros or a plus before it
    Spelling.DECIMAL: re.compile(r"-?(?:[1-9][0-9]{0,99}|0)(?:\.[0-9]{1,99})?"),
    Spelling.JSON: re.compile(r"\s*[{\[].*[}\]]\s*", re.DOTALL),
    Spelling.HEX: re.compile("(?:[0-9a-fA-F]{2}){8,}+"),
    Spelling.BASE64: re.compile("(?:[A-Za-z0-9+/]{4}){3,}+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
    Spelling.FINER_TIMESTAMPTZ: re.compile(rf"{_DATE}[T ]{_FINER}{_OFFSET}"),
    Spelling.FINER_TIMESTAMP: re.compile(rf"{_DATE}[T ]{_FINER}"),
    Spelling.FINER_TIME: re.compile(rf"(?!23:59:59\.999999[0-9]){_FINER}"),  # it may be rounded to 24:00
}


def spells(spelling: Spelling, text: str) -> bool:
    """Tell whether a text is spelled so, and names a value that exists."""
    if not _SHAPES[spelling].fullmatch(text):
        return False
    check = _CHECKS.get(spelling)
    try:
        return check is None or check(text)
    except (ValueError, OverflowError):
        return False


def _is_time_with_offset(text: str) -> bool:
    # PostgreSQL gets the instant in UTC, whose year must be one of 1 to 9999, too.
    return datetime.fromisoformat(text).astimezone(UTC) is not None


def _rounded_up(text: str) -> datetime:
    # Fails beyond the year 9999, as the rounded time would.
    return datetime.fromisoformat(text) + timedelta(microseconds=1)


def _is_base64(text: str) -> bool:
    return binascii.b2a_base64(binascii.a2b_base64(text, strict_mode=True), newline=False).decode() == text


_CHECKS: Mapping[Spelling, Callable[[str], bool]] = {
    Spelling.TIMESTAMPTZ: _is_time_with_offset,
    Spelling.TIMESTAMP: lambda text: datetime.fromisoformat(text) is not None,
    Spelling.DATE: lambda text: date.fromisoformat(text) is not None,
    Spelling.TIME: lambda text: time.fromisoformat(text) is not None,
    Spelling.JSON: lambda text: read_document(text.encode()) is not None,
    Spelling.BASE64: _is_base64,
    Spelling.FINER_TIMESTAMPTZ: lambda text: _rounded_up(text).astimezone(UTC) is not None,
    Spelling.FINER_TIMESTAMP: lambda text: _rounded_up(text) is not None,
    Spelling.FINER_TIME: lambda text: time.fromisoformat(text) is not None,
}


class Texts:
    """The texts of one field, one after another: what all of them spell, the least and the greatest."""

    __slots__ = ("high", "is_padded", "low", "spellings")

    def __init__(self) -> None:
        self.spellings = tuple(Spelling)
        self.low: str | None = None
        self.high: str | None = None
        self.is_padded = False

    def observe(self, text: str) -> None:
        """Take one that a text column can hold."""
        if self.spellings:
            self.spellings = tuple([spelling for spelling in self.spellings if spells(spelling, text)])
        if self.low is None or self.high is None:
            self.low = self.high = text
        elif text < self.low:
            self.low = text
        elif text > self.high:
            self.high = text
        self.is_padded = self.is_padded or text.endswith("=")


class Numbers:
    """The numbers of one field, one after another.

    Attributes:
        low: The least; ``None`` before the first.
        high: The greatest.
        are_whole: Whether all are written without point and exponent.
        are_doubles: Whether each is the shortest decimal of a double, so that double precision holds it exactly.
        are_thousands: Whether each is whole and divisible by 1,000.
        are_padded: Whether one ends in a zero after other digits behind the point, as only decimal types write it.
        scale: Most digits after the point.
    """

    __slots__ = ("are_doubles", "are_padded", "are_thousands", "are_whole", "high", "low", "scale")

    def __init__(self) -> None:
        self.low: Decimal | int | None = None
        self.high: Decimal | int | None = None
        self.are_whole = self.are_doubles = self.are_thousands = True
        self.are_padded = False
        self.scale = 0

    def observe(self, number: str) -> None:
        """Take one within numeric's limits."""
        is_whole = number.lstrip("-").isdigit()
        value = int(number) if is_whole and len(number) < 20 else Decimal(number)
        if self.low is None or value < self.low:
            self.low = value
        if self.high is None or value > self.high:
            self.high = value
        self.are_thousands = self.are_thousands and is_whole and number.endswith("000")
        if not is_whole:
            self.are_whole = False
            self.are_padded = self.are_padded or _is_padded(number)
            exponent = value.as_tuple().exponent if isinstance(value, Decimal) else 0
            self.scale = max(self.scale, -exponent if isinstance(exponent, int) else 0)
        self.are_doubles = self.are_doubles and _is_shortest(number, value)


def _is_padded(number: str) -> bool:
    fraction = number.partition(".")[2]
    return len(fraction) > 1 and fraction.isdigit() and fraction.endswith("0")


def _is_shortest(number: str, value: Decimal | int) -> bool:
    if isinstance(value, int) and -(2**53) <= value <= 2**53:
        return True
    nearest = float(number)
    return math.isfinite(nearest) and Decimal(repr(nearest)) == value


# Texts for people.

_MOST_CHARACTERS = 60


def shown(text: str) -> str:
    """Quote a text for a comment: one line, at most 60 characters, nothing in it that does not print."""
    quoted = json.dumps(text[: _MOST_CHARACTERS + 1], ensure_ascii=False)
    escaped = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in quoted)
    if len(escaped) <= _MOST_CHARACTERS and len(text) <= _MOST_CHARACTERS:
        return escaped
    return f'{escaped[: _MOST_CHARACTERS - 2].rstrip(chr(92))}…"'
