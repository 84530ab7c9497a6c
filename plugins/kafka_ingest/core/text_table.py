"""Rows as aligned text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

Row = Mapping[str, Any]


def table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Gives aligned text with a heading; numbers stand to the right, a missing value is ``-``."""
    cells = [[cell(row.get(column)) for column in columns] for row in rows]
    headings = [column.replace("_", " ") for column in columns]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    is_number = [all(isinstance(row.get(c), int | float | None) for row in rows) for c in columns]

    def line(values: Sequence[str]) -> str:
        parts = zip(values, widths, is_number, strict=True)
        return "  ".join(v.rjust(w) if right else v.ljust(w) for v, w, right in parts).rstrip()

    return "\n".join([line(headings), line(["-" * width for width in widths]), *map(line, cells)])


def vertical(row: Row) -> str:
    """Give one row as aligned text, a line for each key."""
    width = max(len(key) for key in row)
    return "\n".join(f"{key.ljust(width)}  {cell(value)}" for key, value in row.items())


def cell(value: Any) -> str:
    """Gives one value as text on one line."""
    match value:
        case None | "" | []:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%SZ")
        case bytes():
            return _readable(value)
        case list() | tuple():
            return ", ".join(cell(item) for item in value)
        case _:
            return " ".join(str(value).split())


def _readable(value: bytes) -> str:
    """Text where it is printable text; else PostgreSQL's hex spelling, which ``decode`` and ``bytea`` take back."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "\\x" + value.hex()
    return text if text.isprintable() and text else "\\x" + value.hex()
