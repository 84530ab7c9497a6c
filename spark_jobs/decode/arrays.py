"""The rule for arrays of scalars: a JSON array whose elements follow the scalar's rule; null elements stay null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from spark_jobs.copy_format import array_literal
from spark_jobs.decode.json_values import described
from spark_jobs.decode.misfits import Misfit, wrong_type
from spark_jobs.decode.value_rules import Cell, QuickColumn, ValueRule

_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])


class ArrayRule:
    """A one-dimensional array, as PostgreSQL's array literal; an array inside it is of the wrong type."""

    quick_type: Any = msgspec.Raw

    def __init__(self, element: ValueRule) -> None:
        self._element = element

    def exact(self, raw: str) -> str:
        """Gives the array literal (https://www.postgresql.org/docs/18/arrays.html#ARRAYS-IO)."""
        if raw[0] != "[":
            raise wrong_type("an array", described(raw))
        elements = (str(element, "utf-8") for element in _ELEMENTS.decode(raw))
        return array_literal([self._text(number, element) for number, element in enumerate(elements, start=1)])

    def _text(self, number: int, raw: str) -> str | None:
        if raw == "null":
            return None
        try:
            return _input_text(self._element.exact(raw))
        except Misfit as misfit:
            raise misfit.at(f"element {number}") from None

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Reads each value in the exact way; a misfit is left to the record's exact reading."""
        cells: list[str | None] = []
        doubtful = []
        for position, value in enumerate(values):
            text = "null" if value is None else str(value, "utf-8")
            try:
                cells.append(None if text == "null" else self.exact(text))
            except Misfit:
                cells.append(None)
                doubtful.append(position)
        return QuickColumn(pa.array(cells, pa.string()), doubtful)


def _input_text(cell: Cell) -> str:
    if isinstance(cell, bytes):
        return f"\\x{cell.hex()}"
    return str(cell)
