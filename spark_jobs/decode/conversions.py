"""Conversions: JSON values that are written in another way than the usual one of their column's type.

Each reads one JSON value as what it is written as, and gives what the type's own rule gives for the same value: times
as numbers since 1970, numbers and documents inside strings, bytes as hexadecimal digits. Nothing is rounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.settings import Conversion
from spark_jobs.decode.documents import checked_document
from spark_jobs.decode.numbers import DecimalText
from spark_jobs.decode.values import (
    Cell,
    ColumnPlan,
    DecodeError,
    QuickColumn,
    ValueRule,
    described,
    excerpt,
    number_text,
    out_of_range,
    positions,
    read_each,
    string_value,
    wrong_type,
)

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the text of a time in UTC has no offset before it is written
_DAY = 86_400_000_000
#: 0001-01-01T00:00:00Z and 9999-12-31T23:59:59.999999Z, in microseconds since 1970: the years of all times here.
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
_LARGEST = 2**63 - 1

#: What the number of a conversion counts, and how many microseconds (or parts of one) that is.
_UNITS: Mapping[Conversion, tuple[str, int, int]] = {
    Conversion.EPOCH_SECONDS: ("seconds", 1_000_000, 1),
    Conversion.EPOCH_MILLIS: ("milliseconds", 1_000, 1),
    Conversion.EPOCH_MICROS: ("microseconds", 1, 1),
    Conversion.EPOCH_NANOS: ("nanoseconds", 1, 1_000),
    Conversion.EPOCH_DAYS: ("days", _DAY, 1),
}
#: Nine digits after the point of a second are nanoseconds; whole numbers of 64 bits have 19 digits.
_MOST_DIGITS = 19
_MOST_SCALE = 9


def converted(rule: ValueRule, plan: ColumnPlan) -> ValueRule:
    """Return the rule of a column: the type's own, or the one that its conversion makes of it.

    Args:
        rule: The type's own.
        plan: The column.
    """
    match plan.conversion:
        case None | Conversion.BASE64:
            return RoundedTimeRule(rule) if plan.is_rounded else rule
        case Conversion.NUMBER_TEXT:
            return NumberTextRule(rule)
        case Conversion.JSON_TEXT:
            return JsonTextRule(rule)
        case Conversion.HEX:
            return HexRule(rule)
    return EpochRule(rule, plan.type.name, plan.conversion, is_rounded=plan.is_rounded)


class RoundedTimeRule:
    """time, timestamp and timestamptz whose seconds may have more digits than six: to the nearest, halves up.

    Args:
        rule: The rule of the column's type, which refuses such times.
    """

    _FINE = re.compile(rb"[0-9][.,][0-9]{6}([0-9]+)")

    def __init__(self, rule: ValueRule) -> None:
        self.arrow_type = rule.arrow_type
        self.fields = rule.fields
        self.quick_type = rule.quick_type
        self.quick = rule.quick
        self._rule = rule

    def exact(self, raw: bytes) -> Cell:
        """Read the time without the digits behind the sixth, and add a microsecond where they are half of one."""
        fine = self._FINE.search(raw)
        if fine is None:
            return self._rule.exact(raw)
        cell = self._rule.exact(raw[: fine.start(1)] + raw[fine.end(1) :])
        try:
            return cell if fine[1] < b"5" else _next_microsecond(str(cell))
        except OverflowError:
            raise out_of_range("a time that can be rounded", excerpt(raw)) from None


def _next_microsecond(text: str) -> str:
    microsecond = timedelta(microseconds=1)
    if "-" in text[:5]:
        return (datetime.fromisoformat(text) + microsecond).isoformat(sep=" ", timespec="microseconds")
    after = datetime.combine(date.min, time.fromisoformat(text)) + microsecond
    if after.date() != date.min:
        raise OverflowError("the next day")
    return after.time().isoformat(timespec="microseconds")


class EpochRule:
    """date, timestamp and timestamptz from a number of units since 1970-01-01T00:00:00Z.

    Args:
        rule: The rule of the column's type.
        type_name: The type, as PostgreSQL spells it.
        conversion: Names the unit.
        is_rounded: Whether parts of a microsecond are rounded, halves up.
    """

    def __init__(self, rule: ValueRule, type_name: str, conversion: Conversion, *, is_rounded: bool = False) -> None:
        self._is_rounded = is_rounded
        self.arrow_type = rule.arrow_type
        self.fields = rule.fields
        self._is_date = type_name == "date"
        self._zone = "+00" if type_name == "timestamp with time zone" else ""
        units, self._microseconds, self._parts = _UNITS[conversion]
        self._expected = f"a number of {units} since 1970"
        first, last = -(-_FIRST * self._parts // self._microseconds), _LAST * self._parts // self._microseconds
        bounds = msgspec.Meta(ge=max(first, -_LARGEST), le=min(last, _LARGEST))
        self.quick_type: Any = Annotated[int, bounds] | None

    def exact(self, raw: bytes) -> str:
        """Return PostgreSQL's input text for exactly this instant, in UTC."""
        number = DecimalText.parse(number_text(raw, self._expected))
        if number is None or not number.fits(integer_digits=_MOST_DIGITS, scale=_MOST_SCALE):
            raise self._unfit(raw, "that names a time")
        whole, _, fraction = number.plain(max_scale=_MOST_SCALE).partition(".")
        parts = self._parts * 10 ** len(fraction)
        microseconds, rest = divmod(int(whole + fraction) * self._microseconds, parts)
        if rest and not self._is_rounded:
            raise self._unfit(raw, "that are whole microseconds, as PostgreSQL stores them")
        microseconds += 2 * rest >= parts
        if not _FIRST <= microseconds <= _LAST:
            raise self._unfit(raw, "within the years 1 to 9999")
        if self._is_date and microseconds % _DAY:
            raise self._unfit(raw, "that are whole days")
        instant = _EPOCH + timedelta(microseconds=microseconds)
        if self._is_date:
            return instant.date().isoformat()
        return instant.isoformat(sep=" ", timespec="microseconds") + self._zone

    def _unfit(self, raw: bytes, which: str) -> DecodeError:
        return out_of_range(f"{self._expected} {which}", excerpt(raw))

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Take whole numbers within the years; numbers with a point or an exponent are read the exact way."""
        units = pa.array(values, pa.int64())
        microseconds = pc.divide(pc.multiply(units, self._microseconds), self._parts)
        doubtful = positions(pc.not_equal(pc.multiply(microseconds, self._parts), units)) if self._parts > 1 else []
        if not self._is_date:
            texts = microseconds.cast(pa.timestamp("us")).cast(pa.string())
            return QuickColumn(pc.binary_join_element_wise(texts, self._zone, ""), doubtful)
        days = pc.divide(microseconds, _DAY)
        doubtful += positions(pc.not_equal(pc.multiply(days, _DAY), microseconds))
        return QuickColumn(days.cast(pa.int32()).cast(pa.date32()).cast(pa.string()), doubtful)


class _TextRule:
    """A string that holds the value; every value is read the exact way.

    Args:
        rule: The rule of the column's type.
    """

    quick_type: Any = msgspec.Raw

    def __init__(self, rule: ValueRule) -> None:
        self.arrow_type = rule.arrow_type
        self.fields = rule.fields
        self._rule = rule

    def exact(self, raw: bytes) -> Cell:
        """Read one JSON string."""
        raise NotImplementedError

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Read each value in the exact way; a decode error is left to the record's exact reading."""
        return read_each(self, values)


class NumberTextRule(_TextRule):
    """A string with a plain decimal number, exponents allowed; the number must fit the type."""

    def exact(self, raw: bytes) -> Cell:
        """Read the number by the type's own rule."""
        expected = "a string that holds a number"
        text = string_value(raw, expected)
        number = DecimalText.parse(text)
        if number is None:
            raise wrong_type(expected, described(raw))
        digits = text.lstrip("+-")
        return self._rule.exact(f"{'-' * number.negative}{'0' * digits.startswith('.')}{digits}".encode())


class JsonTextRule(_TextRule):
    """A string that holds one JSON document, checked like the value of a record."""

    def exact(self, raw: bytes) -> Cell:
        """Return the document; the text ``null`` is the jsonb value null and not NULL."""
        text = string_value(raw, "a string that holds JSON")
        return self._rule.exact(checked_document(text.encode()))


class HexRule(_TextRule):
    """A string of hexadecimal digits, two a byte, in either case."""

    _DIGITS = re.compile("(?:[0-9a-fA-F]{2})*+")

    def exact(self, raw: bytes) -> bytes:
        """Return the bytes."""
        expected = "a string of hexadecimal digits, two a byte"
        text = string_value(raw, expected)
        if not self._DIGITS.fullmatch(text):
            raise wrong_type(expected, described(raw))
        return bytes.fromhex(text)
