"""The rule for arrays of scalars: a JSON array whose elements follow the scalar's rule; null elements stay null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

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
        return "{" + ",".join(self._literal(number, text) for number, text in enumerate(elements, start=1)) + "}"

    def _literal(self, number: int, raw: str) -> str:
        if raw == "null":
            return "NULL"
        try:
            return array_element(self._element.exact(raw))
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


def array_element(cell: Cell) -> str:
    """Writes a value as an element of an array literal."""
    if isinstance(cell, bool):
        return "t" if cell else "f"
    if isinstance(cell, int | float):
        return repr(cell)
    if isinstance(cell, bytes):
        return f'"\\\\x{cell.hex()}"'
    escaped = cell.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
