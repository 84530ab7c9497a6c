"""Numbers, exactly: integers, floating point, numeric."""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact
from functools import partial
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.column_types import ColumnType
from spark_jobs.decode.fields import Fields, Matrix, big_endian, fixed_bytes, number_fields, with_nulls_of
from spark_jobs.decode.values import (
    INFINITY_NUMBER,
    MOST_DECIMAL_BYTES,
    NAN_NUMBER,
    NEGATIVE_INFINITY_NUMBER,
    QuickColumn,
    ValueRule,
    described,
    excerpt,
    has_character,
    number_text,
    out_of_range,
    positions,
    raw_texts,
    string_value,
    wrong_type,
)

# Decimal numbers as text, without ever going through a float, and the rule for numeric columns.

# https://www.postgresql.org/docs/18/datatype-numeric.html, table 8.2: digits before and after the decimal point.
MAX_INTEGER_DIGITS = 131_072
MAX_SCALE = 16_383
_ALL_DIGITS = Context(prec=MAX_INTEGER_DIGITS + MAX_SCALE + 10, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact])
#: Up to this many bits a number becomes decimal in one piece; in one piece a long one takes quadratic time.
_SHORT_BITS = 2_000

# Exponents are cut here: far beyond every limit, small enough for arithmetic on the size of any message.
_EXPONENT_BOUND = 10**12

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?)0*+([0-9]*))?")

# More zeros than this are not written out. Numbers of 16 digits, which may travel in binary, never have more.
_MOST_ZEROS = 16

_NUMERIC_BASE = 10_000
_NUMERIC_NEGATIVE = 0x4000
#: In binary, so that digits after the point, in groups of four, and those before it fit an int64 each.
_MAX_BINARY_PRECISION = 16

# RE2 allows no more repetitions than this; longer numbers are read the exact way.
_QUICK_DIGITS = 500


@dataclass(frozen=True, slots=True)
class DecimalText:
    """A decimal number: ``digits`` x 10^``exponent``.

    Attributes:
        negative: Whether a minus sign is written (also before zero).
        digits: The written digits without leading zeros; empty for zero. Trailing zeros are kept.
        exponent: Power of ten of the last written digit.
    """

    negative: bool
    digits: str
    exponent: int

    @classmethod
    def parse(cls, text: str) -> DecimalText | None:
        """Read a plain decimal number with an optional exponent; ``None`` for any other text.

        The cost grows with the length of the text only, whatever its exponent says.
        """
        parts = _NUMBER.fullmatch(text)
        if not parts or not (parts[2] or parts[3]) or (parts[5] == "" and text[-1:] != "0"):
            return None
        fraction = parts[3] or ""
        size = int(parts[5] or "0") if len(parts[5] or "") <= 12 else _EXPONENT_BOUND
        exponent = (-size if parts[4] == "-" else size) - len(fraction)
        return cls(parts[1] == "-", (parts[2] + fraction).lstrip("0"), exponent)

    @property
    def integer_digits(self) -> int:
        """Number of digits before the point; 0 or less for a number smaller than one."""
        return len(self.digits) + self.exponent if self.digits else 0

    @property
    def needed_scale(self) -> int:
        """Number of digits after the point that are not trailing zeros; 0 or less for an integral number."""
        significant = self.digits.rstrip("0")
        return -(self.exponent + len(self.digits) - len(significant)) if significant else 0

    def fits(self, *, integer_digits: int, scale: int) -> bool:
        """Tell whether the number has at most this many digits before and (except zeros) after the point."""
        return self.integer_digits <= integer_digits and self.needed_scale <= scale

    def input_text(self, *, max_scale: int) -> str:
        """Write the number like :meth:`plain`, with an exponent where that would add many zeros.

        ``1e131071`` is eight characters and would become 131,072. PostgreSQL reads either to the same value with the
        same number of digits after the point (``set_var_from_str``, src/backend/utils/adt/numeric.c of 18).
        """
        scale = min(max(-self.exponent, 0), max_scale)
        zeros = max(self.exponent if self.digits else 0, scale - len(self.digits))
        if zeros <= _MOST_ZEROS:
            return self.plain(max_scale=max_scale)
        digits = self.digits[: scale + self.exponent or None] if self.exponent < 0 else self.digits
        return f"{'-' if self.negative else ''}{digits or '0'}e{max(self.exponent, -scale)}"

    def plain(self, *, max_scale: int) -> str:
        """Write the number without exponent; zeros beyond ``max_scale`` are left out. Only for a number that fits."""
        scale = min(max(-self.exponent, 0), max_scale)
        shift = self.exponent + scale if self.digits else 0
        digits = self.digits + "0" * shift if shift >= 0 else self.digits[:shift]
        digits = digits.rjust(scale + 1, "0")
        sign = "-" if self.negative else ""
        return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


_NO_NUMBERS = {
    "nan": msgspec.Raw(NAN_NUMBER),
    "inf": msgspec.Raw(INFINITY_NUMBER),
    "-inf": msgspec.Raw(NEGATIVE_INFINITY_NUMBER),
}


def float_number(value: float) -> float | msgspec.Raw:
    """Return a float of a binary format as what msgspec writes."""
    return value if math.isfinite(value) else _NO_NUMBERS[str(value)]


def decimal_text(data: bytes, scale: int) -> bytes:
    """Write a decimal of a binary format with all its digits.

    Args:
        data: The unscaled number in two's complement, the most significant byte first.
        scale: Digits after the point; negative ones are zeros before it.

    Raises:
        DecodeError: It is longer than any numeric.
    """
    if len(data) > MOST_DECIMAL_BYTES:
        raise out_of_range("a decimal that numeric holds", f"one of {len(data)} bytes")
    unscaled = int.from_bytes(data, "big", signed=True)
    sign, digits = "-" if unscaled < 0 else "", f"{_decimal(abs(unscaled)):f}"
    if scale and not 0 < scale <= len(digits) + _MOST_ZEROS:
        return f"{sign}{digits}e{-scale}".encode()
    digits = digits.rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}".encode() if scale else f"{sign}{digits}".encode()


def _decimal(number: int) -> Decimal:
    half = number.bit_length() // 2
    if half <= _SHORT_BITS:
        return Decimal(number)
    high, low = _decimal(number >> half), _decimal(number & ((1 << half) - 1))
    return _ALL_DIGITS.fma(high, _ALL_DIGITS.power(2, half), low)


def _numeric_fields(precision: int, scale: int, texts: pa.Array) -> pa.Array:
    """Digits to the base 10,000 from the point on to both sides; PostgreSQL drops zeros at either end."""
    unscaled = _unscaled(pc.fill_null(texts, "0").cast(pa.decimal128(precision, scale)))
    size = pc.abs(unscaled)
    integer = pc.divide(size, 10**scale)
    fraction = pc.subtract(size, pc.multiply(integer, 10**scale))
    integer_digits, fraction_digits = -(-(precision - scale) // 4), -(-scale // 4)
    aligned = pc.multiply(fraction, 10 ** (4 * fraction_digits - scale))
    digits = [*_digits(integer, integer_digits), *_digits(aligned, fraction_digits)]
    sign = pc.if_else(pc.less(unscaled, 0), _NUMERIC_NEGATIVE, 0)
    field = Matrix(len(digits).to_bytes(2, "big") + (integer_digits - 1).to_bytes(2, "big", signed=True))
    field.add(big_endian(sign.cast(pa.int16())), 2)
    field.add_constant(scale.to_bytes(2, "big"))
    for digit in digits:
        field.add(big_endian(digit.cast(pa.int16())), 2)
    return with_nulls_of(texts, field.fields(len(texts)))


def _unscaled(decimals: pa.Array) -> pa.Array:
    """Return the unscaled values, which fit the lower half of decimal128's 16 bytes."""
    words = pa.Array.from_buffers(pa.int64(), 2 * len(decimals), [None, pa.py_buffer(fixed_bytes(decimals))])
    lower = 0 if sys.byteorder == "little" else 1
    return pa.Array.from_buffers(
        pa.int64(), len(decimals), [None, pa.py_buffer(memoryview(fixed_bytes(words)).cast("q")[lower::2].tobytes())]
    )


def _digits(numbers: pa.Array, count: int) -> Sequence[pa.Array]:
    """Return the ``count`` last digits to the base 10,000, the most significant first."""
    digits: list[pa.Array] = []
    for _ in range(count):
        higher = pc.divide(numbers, _NUMERIC_BASE)
        digits.insert(0, pc.subtract(numbers, pc.multiply(higher, _NUMERIC_BASE)))
        numbers = higher
    return digits


class NumericRule:
    """numeric and numeric(p,s): a JSON number, or a string with a plain decimal number. Never rounded."""

    quick_type: Any = msgspec.Raw
    arrow_type = pa.string()

    def __init__(self, name: str, *, precision: int | None, scale: int | None) -> None:
        self._expected = name
        self.fields: Fields | None = None
        if precision is not None and scale is not None and precision <= _MAX_BINARY_PRECISION:
            self.fields = partial(_numeric_fields, precision, scale)
        self._scale = MAX_SCALE if scale is None else scale
        self._integer_digits = MAX_INTEGER_DIGITS if precision is None else precision - self._scale
        self._quick_pattern = self._pattern()

    def _pattern(self) -> str:
        more = min(self._integer_digits - 1, _QUICK_DIGITS)
        integer = "0" if more < 0 else f"(?:0|[1-9][0-9]{{0,{more}}})"
        fraction = f"(?:\\.[0-9]{{1,{min(self._scale, _QUICK_DIGITS)}}})?" if self._scale else ""
        number = f"-?{integer}{fraction}"
        return f'^(?:{number}|"{number}")$'

    def exact(self, raw: bytes) -> str:
        """Return the number as PostgreSQL's input text, never much longer than it is written."""
        expected = f"a number for {self._expected}"
        text = string_value(raw, expected) if raw[:1] == b'"' else number_text(raw, expected)
        number = DecimalText.parse(text)
        if number is None:
            raise wrong_type(expected, described(raw))
        if not number.fits(integer_digits=self._integer_digits, scale=self._scale):
            raise out_of_range(f"a number that {self._expected} holds exactly", excerpt(raw))
        return number.input_text(max_scale=self._scale)

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Take plain numbers within the limits as they are written."""
        texts = raw_texts(values)
        doubtful = positions(pc.invert(pc.match_substring_regex(texts, self._quick_pattern)))
        return QuickColumn(pc.utf8_trim(texts, characters='"') if has_character(texts, b'"') else texts, doubtful)


# Rules for boolean, the integer types and the float types.

_PLAIN_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")

# Decimal digits that every float of the width keeps (C's FLT_DIG and DBL_DIG), so a text of that many characters
# without exponent always names its nearest float.
_SAFE_CHARACTERS = {32: 6, 64: 15}


class BooleanRule:
    """boolean: JSON true and false only."""

    quick_type: Any = bool | None
    arrow_type = pa.bool_()

    def fields(self, column: pa.Array) -> pa.Array:
        """Write a byte for each boolean."""
        return number_fields(column.cast(pa.int8()))

    def exact(self, raw: bytes) -> bool:
        """Return the boolean."""
        if raw not in (b"true", b"false"):
            raise wrong_type("true or false", described(raw))
        return raw == b"true"

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Take what msgspec decoded."""
        return QuickColumn(pa.array(values, self.arrow_type))


class IntegerRule:
    """smallint, integer, bigint: an integral JSON number (also ``1.0`` and ``1e2``) within the type's range.

    A number with a fraction is out of range: it is a number, but none that the type holds exactly.
    """

    fields = staticmethod(number_fields)

    def __init__(self, name: str, *, bits: int) -> None:
        self._low, self._high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        self._expected = f"{name} ({self._low} to {self._high})"
        self.arrow_type = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
        self.quick_type: Any = Annotated[int, msgspec.Meta(ge=self._low, le=self._high)] | None

    def exact(self, raw: bytes) -> int:
        """Return the integer; the number is read as decimal text, so none is too large to be exact."""
        number = DecimalText.parse(number_text(raw, self._expected))
        if number is None or not number.fits(integer_digits=19, scale=0):
            raise out_of_range(self._expected, excerpt(raw))
        cell = int(number.plain(max_scale=0))
        if not self._low <= cell <= self._high:
            raise out_of_range(self._expected, excerpt(raw))
        return cell

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Take what msgspec decoded: it refuses fractions, exponents and what is out of range."""
        return QuickColumn(pa.array(values, self.arrow_type))


class FloatRule:
    """real and double precision: a JSON number that names its nearest float.

    A number names a float when it is exactly the float's value, its shortest decimal, or its decimal with as many
    digits as the width ever needs (9 or 17). For real, the double that a producer made from a real counts, too.
    Any other number would be rounded, and is out of range; so are overflow, and underflow to zero.
    """

    quick_type: Any = msgspec.Raw
    fields = staticmethod(number_fields)

    def __init__(self, name: str, *, bits: int) -> None:
        self._expected = f"a number that {name} holds exactly"
        self._name = name
        self._is_single = bits == 32
        self._safe_characters = _SAFE_CHARACTERS[bits]
        self.arrow_type = pa.float32() if self._is_single else pa.float64()

    def exact(self, raw: bytes) -> float:
        """Return the float; minus zero keeps its sign."""
        text = number_text(raw, f"a number for {self._name}")
        cell = _single(float(text)) if self._is_single else float(text)
        if not math.isfinite(cell) or not self._is_named(text, cell):
            raise out_of_range(self._expected, excerpt(text))
        return cell

    def _is_named(self, text: str, cell: float) -> bool:
        number = DecimalText.parse(text)
        if number is None or cell == 0:
            return number is not None and not number.digits
        value = Decimal(text)
        names = [repr(cell), format(cell, ".17g")]
        if self._is_single:
            names += [_shortest_single(cell), format(cell, ".9g")]
        return value == Decimal(cell) or any(value == Decimal(name) for name in names)

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Take short plain numbers, and doubles written as Python, Java and JavaScript write them."""
        cells: list[float | None] = []
        doubtful = []
        for position, value in enumerate(values):
            text = "null" if value is None else str(value, "utf-8")
            cell = None if text == "null" else self._plain(text)
            cells.append(cell)
            if cell is None and text != "null":
                doubtful.append(position)
        return QuickColumn(pa.array(cells, self.arrow_type), doubtful)

    def _plain(self, text: str) -> float | None:
        if not _PLAIN_NUMBER.fullmatch(text):
            return None
        cell = float(text)
        if len(text) <= self._safe_characters or (not self._is_single and repr(cell) == text):
            return cell
        return None


class BinaryFloatRule(FloatRule):
    """real and double precision of a binary format's documents, which also have NaN and the infinities."""

    _SPECIAL: Mapping[bytes, float] = {
        NAN_NUMBER: math.nan,
        INFINITY_NUMBER: math.inf,
        NEGATIVE_INFINITY_NUMBER: -math.inf,
    }

    def exact(self, raw: bytes) -> float:
        """Return the float."""
        return self._SPECIAL[raw] if raw in self._SPECIAL else super().exact(raw)


def _single(value: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf
    return rounded


def _shortest_single(cell: float) -> str:
    candidates = (format(cell, f".{digits}g") for digits in range(1, 10))
    return next(text for text in candidates if _single(float(text)) == cell)


#: The rule of each type of this family; their texts need no quotes in an array literal.
NUMBERS: Mapping[str, Callable[[ColumnType], ValueRule]] = {
    "boolean": lambda _: BooleanRule(),
    "smallint": lambda _: IntegerRule("smallint", bits=16),
    "integer": lambda _: IntegerRule("integer", bits=32),
    "bigint": lambda _: IntegerRule("bigint", bits=64),
    "real": lambda _: FloatRule("real", bits=32),
    "double precision": lambda _: FloatRule("double precision", bits=64),
    "numeric": lambda of: NumericRule(of.sql, precision=of.precision, scale=of.scale),
}

#: The rules of a binary format's documents that differ from those of JSON.
BINARY_NUMBERS: Mapping[str, Callable[[ColumnType], ValueRule]] = {
    "real": lambda _: BinaryFloatRule("real", bits=32),
    "double precision": lambda _: BinaryFloatRule("double precision", bits=64),
}
