"""Texts, times, jsonb and arrays: what fits, its Arrow type and its field in binary COPY; and the rule of each type."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.column_types import ColumnType, quoted_element
from kafka_ingest.errors import DeadLetterReason
from spark_jobs.decode import fields as binary
from spark_jobs.decode.documents import array_pieces
from spark_jobs.decode.numbers import BINARY_NUMBERS, MAX_INTEGER_DIGITS, MAX_SCALE, NUMBERS, DecimalText
from spark_jobs.decode.values import (
    JSON_STRING,
    Cell,
    ColumnPlan,
    DecodeError,
    QuickColumn,
    ValueRule,
    described,
    excerpt,
    hex_bytes,
    out_of_range,
    positions,
    positions_containing,
    raw_texts,
    read_each,
    string_value,
    unsupported_text,
    wrong_type,
)

# Rules for text, varchar(n), uuid and bytea: JSON strings only.

_UUID = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}")


class TextRule:
    """text and varchar(n): text as it is. U+0000 is unsupported; more than n characters are too many, also spaces."""

    quick_type: Any = str | None
    arrow_type = pa.string()
    fields = staticmethod(binary.byte_fields)

    def __init__(self, length: int | None = None) -> None:
        self._length = length

    def exact(self, raw: bytes) -> str:
        """Return the string's characters."""
        text = string_value(raw, "a string")
        self.check(text, raw)
        return text

    def check(self, text: str, written: str | bytes) -> None:
        """Raise ``DecodeError`` when PostgreSQL cannot hold all of a text; ``written`` is its form in the record."""
        if "\x00" in text:
            raise unsupported_text(f"{excerpt(written)} (one is character {text.index(chr(0)) + 1})")
        if self._length is not None and len(text) > self._length:
            found = f"{excerpt(written)} ({len(text)} characters)"
            raise DecodeError(DeadLetterReason.TOO_LONG, f"expected at most {self._length} characters, found {found}")

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Take what msgspec decoded, checked as a column."""
        texts = pa.array(values, pa.string())
        return QuickColumn(texts, self.doubtful(texts))

    def doubtful(self, texts: pa.Array) -> list[int]:
        """Return the positions of texts that :meth:`check` would refuse; null is fine."""
        doubtful = positions_containing(texts, "\x00", sign=b"\x00")
        if self._length is not None:
            doubtful += positions(pc.greater(pc.utf8_length(texts), self._length))
        return doubtful


def _uuid_fields(texts: pa.Array) -> pa.Array:
    digits = pc.replace_substring(pc.fill_null(texts, "0" * 32), "-", "").cast(binary.BYTES)
    if pc.any(pc.not_equal(pc.binary_length(digits), 32)).as_py():
        raise binary.NotBinaryError("a UUID without 32 digits")
    data = binascii.unhexlify(binary.all_bytes(digits))
    return binary.with_nulls_of(texts, binary.fixed_fields(data, 16, len(texts)))


class UuidRule:
    """uuid: 32 hexadecimal digits, with hyphens as 8-4-4-4-12 or without any."""

    quick_type: Any = str | None
    arrow_type = pa.string()
    fields = staticmethod(_uuid_fields)

    def exact(self, raw: bytes) -> str:
        """Return the text as it is written."""
        text = string_value(raw, "a UUID")
        if not _UUID.fullmatch(text):
            raise wrong_type("a UUID", described(raw))
        return text

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Take what has the form of a UUID."""
        texts = pa.array(values, pa.string())
        return QuickColumn(texts, positions(pc.invert(pc.match_substring_regex(texts, f"^(?:{_UUID.pattern})$"))))


class ByteaRule:
    """bytea: base64 of RFC 4648, section 4, with padding, as an encoder writes it (no white space, no spare bits)."""

    quick_type: Any = str | None
    arrow_type = pa.large_binary()
    fields = staticmethod(binary.byte_fields)

    def exact(self, raw: bytes) -> bytes:
        """Return the bytes."""
        text = string_value(raw, "a base64 string")
        data = _base64(text)
        if data is None:
            raise wrong_type("a base64 string", described(raw))
        return data

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Decode each value; one that is not base64 is in doubt."""
        cells = [None if value is None else _base64(value) for value in values]
        pairs = zip(values, cells, strict=True)
        doubtful = [position for position, (value, cell) in enumerate(pairs) if cell is None and value is not None]
        return QuickColumn(pa.array(cells, self.arrow_type), doubtful)


def _base64(text: str) -> bytes | None:
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # binascii.Error, or characters that are not ASCII
        return None
    return data if binascii.b2a_base64(data, newline=False).decode() == text else None


# Rules for date, time, timestamp and timestamptz: ISO 8601 strings in the extended format, exact to the microsecond.
#
# Years 1 to 9999. The fraction may have more than six digits only where the rest are zeros. 24:00 and leap seconds are
# out of range: PostgreSQL would move them to another instant. ``timestamptz`` needs ``Z`` or an offset; the others must
# not have one.

_DATE = "(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_TIME = "(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?"
_ZONE = "(?P<zone>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)"

# Text that PostgreSQL reads to the same value, whatever its settings: dates that exist (29 February is left to the
# exact way), years 1000 to 2999, offsets that PostgreSQL accepts (it refuses 16 hours and more).
_PLAIN_DATE = (
    "[12][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_PLAIN_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_PLAIN_ZONE = "(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9])"

#: PostgreSQL counts from 2000-01-01, Arrow from 1970-01-01.
_DAYS_TO_2000 = 10_957
_MICROSECONDS_TO_2000 = _DAYS_TO_2000 * 86_400_000_000


class TimeRule:
    """The rule of one of these types.

    Args:
        expected: What a string must be, for a detail.
        plain: Pattern of texts that PostgreSQL gets as they are.
        shape: Pattern of every text that is accepted.
        rewrite: Checks the parts of a text and writes it anew for PostgreSQL; ``ValueError`` for what does not exist,
            ``OverflowError`` for what the type cannot hold.
        fields: Writes its fields for binary COPY.
    """

    quick_type: Any = str | None
    arrow_type = pa.string()

    def __init__(
        self, expected: str, plain: str, shape: str, rewrite: Callable[[re.Match[str]], str], *, fields: binary.Fields
    ) -> None:
        self._expected = expected
        self.fields = fields
        self._plain = re.compile(plain)
        self._shape = re.compile(shape)
        self._rewrite = rewrite

    def exact(self, raw: bytes) -> str:
        """Return PostgreSQL's input text for exactly the named value."""
        text = string_value(raw, self._expected)
        if self._plain.fullmatch(text):
            return text
        parts = self._shape.fullmatch(text)
        if not parts:
            raise wrong_type(self._expected, described(raw))
        try:
            return self._rewrite(parts)
        except OverflowError as error:
            raise out_of_range(self._expected, f"{excerpt(raw)} ({error})") from None
        except ValueError as error:
            raise wrong_type(self._expected, f"{excerpt(raw)} ({error})") from None

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Take plain texts as they are."""
        texts = pa.array(values, pa.string())
        return QuickColumn(texts, positions(pc.invert(pc.match_substring_regex(texts, f"^{self._plain.pattern}$"))))


def _date(parts: re.Match[str]) -> date:
    if parts["year"] == "0000":
        raise OverflowError("years are 1 to 9999")
    return date(int(parts["year"]), int(parts["month"]), int(parts["day"]))


def _time(parts: re.Match[str]) -> time:
    hour, minute, second = (int(parts[name] or "0") for name in ("hour", "minute", "second"))
    fraction = parts["fraction"] or ""
    if (hour, minute, second) == (24, 0, 0) and not fraction.strip("0"):
        raise OverflowError("write 24:00 as 00:00 of the next day")
    if second == 60:
        raise OverflowError("leap seconds cannot be stored")
    if fraction[6:].strip("0"):
        raise OverflowError("more than six digits of a second")
    return time(hour, minute, second, int(fraction[:6].ljust(6, "0")))


def _zone(text: str) -> timezone:
    if text in "Zz":
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError("no such offset from UTC")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def _rewrite_date(parts: re.Match[str]) -> str:
    return _date(parts).isoformat()


def _rewrite_time(parts: re.Match[str]) -> str:
    return _time(parts).isoformat()


def _rewrite_timestamp(parts: re.Match[str]) -> str:
    return datetime.combine(_date(parts), _time(parts)).isoformat(sep=" ")


def _rewrite_timestamptz(parts: re.Match[str]) -> str:
    local = datetime.combine(_date(parts), _time(parts), _zone(parts["zone"]))
    try:
        instant = local.astimezone(UTC)
    except OverflowError:
        raise OverflowError("outside the years 1 to 9999 in UTC") from None
    return f"{instant.replace(tzinfo=None).isoformat(sep=' ')}+00"


def _date_fields(texts: pa.Array) -> pa.Array:
    return binary.number_fields(
        pc.subtract(texts.cast(pa.date32()).cast(pa.int32()), pa.scalar(_DAYS_TO_2000, pa.int32()))
    )


def _time_fields(texts: pa.Array) -> pa.Array:
    # Arrow reads no time of day by itself.
    day = pc.binary_join_element_wise("1970-01-01", texts, " ")
    return binary.number_fields(day.cast(pa.timestamp("us")).cast(pa.int64()))


def _timestamp_fields(zone: str | None, times: pa.Array) -> pa.Array:
    """Write texts, or record times."""
    since_1970 = times.cast(pa.timestamp("us", zone)).cast(pa.int64())
    return binary.number_fields(pc.subtract(since_1970, _MICROSECONDS_TO_2000))


_STAMP, _PLAIN_STAMP = f"{_DATE}[Tt ]{_TIME}", f"{_PLAIN_DATE}[T ]{_PLAIN_TIME}"

DATE_RULE = TimeRule("a date as YYYY-MM-DD", _PLAIN_DATE, _DATE, _rewrite_date, fields=_date_fields)
TIME_RULE = TimeRule(
    "a time of day as HH:MM:SS, without offset", _PLAIN_TIME, _TIME, _rewrite_time, fields=_time_fields
)
TIMESTAMP_RULE = TimeRule(
    "an ISO 8601 date and time, without offset from UTC",
    _PLAIN_STAMP,
    _STAMP,
    _rewrite_timestamp,
    fields=partial(_timestamp_fields, None),
)
TIMESTAMPTZ_RULE = TimeRule(
    "an ISO 8601 date and time with Z or an offset from UTC",
    _PLAIN_STAMP + _PLAIN_ZONE,
    _STAMP + _ZONE,
    _rewrite_timestamptz,
    fields=partial(_timestamp_fields, "UTC"),
)


# The rule for jsonb: the JSON text itself, so that numbers stay exact; checked for what jsonb cannot hold.

_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{4}|.)")
# Shorter numbers are within the limits: the first beyond them are 1e131072 and 1e-16384.
_STRING_OR_LONG_NUMBER = re.compile(JSON_STRING + rb"|-?[0-9][0-9.eE+-]{7,}+")

# A number beyond numeric's limits is written with four digits of exponent or with thousands of digits: with three
# digits of exponent it would need more than 15,000 characters.
_LONG_EXPONENT = r"(?:^|[:,\[\s])-?[0-9.]+[eE][+-]?[0-9]{4}"
_MANY_BYTES = 15_000

_QUOTE = ord('"')
_JSONB_VERSION = b"\x01"


def _jsonb_fields(documents: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(
        pa.scalar(_JSONB_VERSION, binary.BYTES), documents.cast(binary.BYTES), binary.NO_SEPARATOR
    )


class JsonbRule:
    r"""jsonb: any JSON value, as its own text (PostgreSQL drops white space, key order and spellings of numbers).

    Of a repeated key the last one counts, as in PostgreSQL. A ``\u0000`` escape is unsupported text; an escaped
    backslash before ``u0000`` is legal. Numbers must be within numeric's limits, which jsonb numbers have.
    """

    quick_type: Any = msgspec.Raw
    arrow_type = pa.string()
    fields = staticmethod(_jsonb_fields)

    def exact(self, raw: bytes) -> bytes:
        """Return the text unchanged when jsonb can hold it."""
        if b"\\u0000" in raw and any(escape[0] == b"\\u0000" for escape in _ESCAPE.finditer(raw)):
            raise unsupported_text(f"{excerpt(raw)} (one is in the JSON value)")
        for token in _STRING_OR_LONG_NUMBER.finditer(raw):
            if raw[token.start()] != _QUOTE and not _is_numeric(token[0].decode("ascii")):
                raise out_of_range("JSON numbers within the limits of numeric", excerpt(token[0]))
        return raw

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Take texts without any sign of a fault; missing and JSON null become null."""
        texts = raw_texts(values)
        return QuickColumn(texts, self.doubtful(texts))

    def doubtful(self, texts: pa.Array) -> list[int]:
        """Return the positions of texts that :meth:`exact` might refuse; null is fine."""
        is_doubtful = pc.or_(
            pc.match_substring_regex(texts, _LONG_EXPONENT), pc.greater(pc.binary_length(texts), _MANY_BYTES)
        )
        return positions_containing(texts, "\\u0000", sign=b"\\") + positions(is_doubtful)


def _is_numeric(token: str) -> bool:
    number = DecimalText.parse(token)
    # Unlike a numeric column's text, which is written anew, jsonb's own trailing zeros count.
    return number is not None and number.integer_digits <= MAX_INTEGER_DIGITS and -number.exponent <= MAX_SCALE


# The rule for arrays of scalars: a JSON array whose elements follow the scalar's rule; null elements stay null.


class ArrayRule:
    """A one-dimensional array, as PostgreSQL's array literal; an array inside it is of the wrong type.

    Args:
        element: The rule of its elements.
        is_bare: Their texts mean nothing else in an array literal, so that they need no quotes.
    """

    quick_type: Any = msgspec.Raw
    arrow_type = pa.string()
    fields: binary.Fields | None = None

    def __init__(self, element: ValueRule, *, is_bare: bool) -> None:
        self._element = element
        self._is_bytea = isinstance(element, ByteaRule)
        self._is_bare = is_bare

    def exact(self, raw: bytes) -> bytes:
        """Return the array literal (https://www.postgresql.org/docs/18/arrays.html#ARRAYS-IO)."""
        if raw[:1] != b"[":
            raise wrong_type("an array", described(raw))
        pieces: list[bytes] = []
        read = 0
        for elements in array_pieces(raw):
            pieces.append(
                b",".join([self._text(number, bytes(element)) for number, element in enumerate(elements, read + 1)])
            )
            read += len(elements)
        return b"{" + b",".join(pieces) + b"}"

    def _text(self, number: int, raw: bytes) -> bytes:
        if raw == b"null":
            return b"NULL"
        try:
            cell = self._element.exact(raw)
        except DecodeError as decode_error:
            raise decode_error.at(f"element {number}") from None
        text = cell if isinstance(cell, bytes) else str(cell).encode()
        if self._is_bare:
            return text
        return quoted_element(hex_bytes(text) if self._is_bytea else text)

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Read each value in the exact way; a decode error is left to the record's exact reading."""
        return read_each(self, values)


_RULES: dict[str, Callable[[ColumnType], ValueRule]] = {
    **NUMBERS,
    "text": lambda _: TextRule(),
    "character varying": lambda of: TextRule(of.length),
    "date": lambda _: DATE_RULE,
    "time without time zone": lambda _: TIME_RULE,
    "timestamp without time zone": lambda _: TIMESTAMP_RULE,
    "timestamp with time zone": lambda _: TIMESTAMPTZ_RULE,
    "uuid": lambda _: UuidRule(),
    "jsonb": lambda _: JsonbRule(),
    "bytea": lambda _: ByteaRule(),
}


def rule_for(column_type: ColumnType, *, of_binary: bool = False) -> ValueRule:
    """Return the rule of a column type; for an array, the array rule over its element's rule.

    Args:
        column_type: The type.
        of_binary: Whether values come from a binary format, whose floats also have NaN and the infinities.
    """
    rules = {**_RULES, **BINARY_NUMBERS} if of_binary else _RULES
    rule = rules[column_type.name](column_type.element)
    return ArrayRule(rule, is_bare=column_type.name in NUMBERS) if column_type.is_array else rule


def default_of(plan: ColumnPlan) -> Cell | None:
    """Return what a missing value of a column becomes; ``None`` for NULL."""
    return None if plan.default is None else rule_for(plan.type).exact(plan.default.encode())
