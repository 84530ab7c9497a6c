"""The rule for jsonb: the JSON text itself, so that numbers stay exact; checked for what jsonb cannot hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.decimals import MAX_INTEGER_DIGITS, MAX_SCALE, DecimalText
from spark_jobs.decode.json_values import JSON_STRING, positions, positions_containing, raw_texts
from spark_jobs.decode.misfits import excerpt, out_of_range, unsupported_text
from spark_jobs.decode.value_rules import QuickColumn

_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{4}|.)")
# Shorter numbers are within the limits: the first beyond them are 1e131072 and 1e-16384.
_STRING_OR_LONG_NUMBER = re.compile(JSON_STRING + rb"|-?[0-9][0-9.eE+-]{7,}+")

# A number beyond numeric's limits is written with four digits of exponent or with thousands of digits: with three
# digits of exponent it would need more than 15,000 characters.
_LONG_EXPONENT = r"(?:^|[:,\[\s])-?[0-9.]+[eE][+-]?[0-9]{4}"
_MANY_BYTES = 15_000

_QUOTE = ord('"')


class JsonbRule:
    r"""jsonb: any JSON value, as its own text (white space, key order and number spelling are PostgreSQL's to drop).

    Of a repeated key the last one counts, as in PostgreSQL. A ``\u0000`` escape is unsupported text; an escaped
    backslash before ``u0000`` is legal. Numbers must be within numeric's limits, which jsonb numbers have.
    """

    quick_type: Any = msgspec.Raw

    def exact(self, raw: bytes) -> bytes:
        """Gives the text back when jsonb can hold it."""
        if b"\\u0000" in raw and any(escape[0] == b"\\u0000" for escape in _ESCAPE.finditer(raw)):
            raise unsupported_text(f"{excerpt(raw)} (one is in the JSON value)")
        for token in _STRING_OR_LONG_NUMBER.finditer(raw):
            if raw[token.start()] != _QUOTE and not _is_numeric(token[0].decode("ascii")):
                raise out_of_range("JSON numbers within the limits of numeric", excerpt(token[0]))
        return raw

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Takes texts without anything that looks like a fault; missing and JSON null become null."""
        texts = raw_texts(values)
        return QuickColumn(texts, self.doubtful(texts))

    def doubtful(self, texts: pa.Array) -> list[int]:
        """Gives the positions of texts that :meth:`exact` might refuse; null is fine."""
        is_doubtful = pc.or_(
            pc.match_substring_regex(texts, _LONG_EXPONENT), pc.greater(pc.binary_length(texts), _MANY_BYTES)
        )
        return positions_containing(texts, "\\u0000", sign=b"\\") + positions(is_doubtful)


def _is_numeric(token: str) -> bool:
    number = DecimalText.parse(token)
    # Unlike a numeric column's text, which is written anew, jsonb's own trailing zeros count.
    return number is not None and number.integer_digits <= MAX_INTEGER_DIGITS and -number.exponent <= MAX_SCALE
