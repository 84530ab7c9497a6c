"""The rule for arrays of scalars: a JSON array whose elements follow the scalar's rule; null elements stay null."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from spark_jobs.copy_format import hex_bytes, quoted_element
from spark_jobs.decode.decimals import NumericRule
from spark_jobs.decode.json_values import JSON_STRING, described
from spark_jobs.decode.misfits import Misfit, wrong_type
from spark_jobs.decode.numbers import BooleanRule, FloatRule, IntegerRule
from spark_jobs.decode.texts import ByteaRule
from spark_jobs.decode.value_rules import QuickColumn, ValueRule

_TOKEN = re.compile(JSON_STRING + rb"|[\[{]|[\]}]|,", re.DOTALL)
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])

#: A long array is read in pieces of about so many bytes: as Python objects, small elements take 80 x their bytes.
_PIECE_BYTES = 4_096

#: Rules whose texts mean nothing else in an array literal, so that they need no quotes.
_BARE = (BooleanRule, IntegerRule, FloatRule, NumericRule)


class ArrayRule:
    """A one-dimensional array, as PostgreSQL's array literal; an array inside it is of the wrong type."""

    quick_type: Any = msgspec.Raw

    def __init__(self, element: ValueRule) -> None:
        self._element = element
        self._is_bytea = isinstance(element, ByteaRule)
        self._is_bare = isinstance(element, _BARE)

    def exact(self, raw: bytes) -> bytes:
        """Gives the array literal (https://www.postgresql.org/docs/18/arrays.html#ARRAYS-IO)."""
        if raw[:1] != b"[":
            raise wrong_type("an array", described(raw))
        pieces: list[bytes] = []
        read = 0
        for elements in _pieces(raw):
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
        except Misfit as misfit:
            raise misfit.at(f"element {number}") from None
        text = cell if isinstance(cell, bytes) else str(cell).encode()
        if self._is_bare:
            return text
        return quoted_element(hex_bytes(text) if self._is_bytea else text)

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Reads each value in the exact way; a misfit is left to the record's exact reading."""
        cells: list[bytes | None] = []
        doubtful = []
        for position, value in enumerate(values):
            raw = b"null" if value is None else bytes(value)
            try:
                cells.append(None if raw == b"null" else self.exact(raw))
            except Misfit:
                cells.append(None)
                doubtful.append(position)
        return QuickColumn(pa.array(cells, pa.string()), doubtful)


def _pieces(raw: bytes) -> Iterator[list[msgspec.Raw]]:
    """Gives the elements of a JSON array, some at a time."""
    if len(raw) <= _PIECE_BYTES:
        yield _ELEMENTS.decode(raw)
        return
    depth, begin, end = 0, 1, len(raw) - 1
    for token in _TOKEN.finditer(raw, begin, end):
        first = raw[token.start()]
        if first in b"[{":
            depth += 1
        elif first in b"]}":
            depth -= 1
        elif first in b"," and not depth and token.start() - begin >= _PIECE_BYTES:
            yield _ELEMENTS.decode(b"[" + raw[begin : token.start()] + b"]")
            begin = token.end()
    yield _ELEMENTS.decode(b"[" + raw[begin:end] + b"]")
