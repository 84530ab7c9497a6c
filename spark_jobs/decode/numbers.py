"""Rules for boolean, the integer types and the float types."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from spark_jobs.decode.decimals import DecimalText
from spark_jobs.decode.json_values import described, number_text
from spark_jobs.decode.misfits import excerpt, out_of_range, wrong_type
from spark_jobs.decode.value_rules import QuickColumn

_PLAIN_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")

# Decimal digits that every float of the width keeps (C's FLT_DIG and DBL_DIG), so a text of that many characters
# without exponent always names its nearest float.
_SAFE_CHARACTERS = {32: 6, 64: 15}


class BooleanRule:
    """boolean: JSON true and false only."""

    quick_type: Any = bool | None

    def exact(self, raw: bytes) -> bool:
        """Gives the boolean."""
        if raw not in (b"true", b"false"):
            raise wrong_type("true or false", described(raw))
        return raw == b"true"

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Takes what msgspec decoded."""
        return QuickColumn(pa.array(values, pa.bool_()))


class IntegerRule:
    """smallint, integer, bigint: an integral JSON number (also ``1.0`` and ``1e2``) within the type's range.

    A number with a fraction is out of range: a number, but none that the type holds exactly.
    """

    def __init__(self, name: str, *, bits: int) -> None:
        self._low, self._high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        self._expected = f"{name} ({self._low} to {self._high})"
        self._arrow = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
        self.quick_type: Any = Annotated[int, msgspec.Meta(ge=self._low, le=self._high)] | None

    def exact(self, raw: bytes) -> int:
        """Gives the integer; the number is read as decimal text, so none is too large to be exact."""
        number = DecimalText.parse(number_text(raw, self._expected))
        if number is None or not number.fits(integer_digits=19, scale=0):
            raise out_of_range(self._expected, excerpt(raw))
        cell = int(number.plain(max_scale=0))
        if not self._low <= cell <= self._high:
            raise out_of_range(self._expected, excerpt(raw))
        return cell

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Takes what msgspec decoded: it refuses fractions, exponents and what is out of range."""
        return QuickColumn(pa.array(values, self._arrow))


class FloatRule:
    """real and double precision: a JSON number that names its nearest float.

    A number names a float when it is exactly the float's value, its shortest decimal, or its decimal with as many
    digits as the width ever needs (9 or 17). For real, the double that a producer widened a real to counts too.
    Any other number would be rounded, and is out of range; so are overflow, and underflow to zero.
    """

    quick_type: Any = msgspec.Raw

    def __init__(self, name: str, *, bits: int) -> None:
        self._expected = f"a number that {name} holds exactly"
        self._name = name
        self._is_single = bits == 32
        self._safe_characters = _SAFE_CHARACTERS[bits]
        self._arrow = pa.float32() if self._is_single else pa.float64()

    def exact(self, raw: bytes) -> float:
        """Gives the float; minus zero keeps its sign."""
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
        """Takes short plain numbers, and doubles written as Python, Java and JavaScript write them."""
        cells: list[float | None] = []
        doubtful = []
        for position, value in enumerate(values):
            text = "null" if value is None else str(value, "utf-8")
            cell = None if text == "null" else self._plain(text)
            cells.append(cell)
            if cell is None and text != "null":
                doubtful.append(position)
        return QuickColumn(pa.array(cells, self._arrow), doubtful)

    def _plain(self, text: str) -> float | None:
        if not _PLAIN_NUMBER.fullmatch(text):
            return None
        cell = float(text)
        if len(text) <= self._safe_characters or (not self._is_single and repr(cell) == text):
            return cell
        return None


def _single(value: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf
    return rounded


def _shortest_single(cell: float) -> str:
    candidates = (format(cell, f".{digits}g") for digits in range(1, 10))
    return next(text for text in candidates if _single(float(text)) == cell)
