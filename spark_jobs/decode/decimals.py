"""Decimal numbers as text, without ever going through a float, and the rule for numeric columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow.compute as pc

from spark_jobs.decode.json_values import described, has_character, number_text, positions, raw_texts, string_value
from spark_jobs.decode.misfits import excerpt, out_of_range, wrong_type
from spark_jobs.decode.value_rules import QuickColumn

# https://www.postgresql.org/docs/18/datatype-numeric.html, table 8.2: digits before and after the decimal point.
MAX_INTEGER_DIGITS = 131_072
MAX_SCALE = 16_383

# Exponents are cut here: far beyond every limit, small enough for arithmetic on the size of any message.
_EXPONENT_BOUND = 10**12

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?)0*+([0-9]*))?")

# More zeros than this are not written out. Numbers of 16 digits, which may travel in binary, never have more.
_MOST_ZEROS = 16

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
        """Reads a plain decimal number with an optional exponent; ``None`` for any other text.

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
        """Whether the number has at most so many digits before and, but for zeros, after the point."""
        return self.integer_digits <= integer_digits and self.needed_scale <= scale

    def input_text(self, *, max_scale: int) -> str:
        """Writes the number as :meth:`plain` does, with an exponent where that would add many zeros.

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
        """Writes the number without exponent; zeros beyond ``max_scale`` are left out. Only for a number that fits."""
        scale = min(max(-self.exponent, 0), max_scale)
        shift = self.exponent + scale if self.digits else 0
        digits = self.digits + "0" * shift if shift >= 0 else self.digits[:shift]
        digits = digits.rjust(scale + 1, "0")
        sign = "-" if self.negative else ""
        return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


class NumericRule:
    """numeric and numeric(p,s): a JSON number, or a string with a plain decimal number. Never rounded."""

    quick_type: Any = msgspec.Raw

    def __init__(self, name: str, *, precision: int | None, scale: int | None) -> None:
        self._expected = name
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
        """Gives the number as PostgreSQL's input text, never much longer than it is written."""
        expected = f"a number for {self._expected}"
        text = string_value(raw, expected) if raw[:1] == b'"' else number_text(raw, expected)
        number = DecimalText.parse(text)
        if number is None:
            raise wrong_type(expected, described(raw))
        if not number.fits(integer_digits=self._integer_digits, scale=self._scale):
            raise out_of_range(f"a number that {self._expected} holds exactly", excerpt(raw))
        return number.input_text(max_scale=self._scale)

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Takes plain numbers within the limits as they are written."""
        texts = raw_texts(values)
        doubtful = positions(pc.invert(pc.match_substring_regex(texts, self._quick_pattern)))
        return QuickColumn(pc.utf8_trim(texts, characters='"') if has_character(texts, b'"') else texts, doubtful)
