"""The PostgreSQL column types that a pipeline can fill, their one spelling, and that of an array's elements.

The spelling is that of PostgreSQL's ``format_type``, so a type of a pipeline file can be compared with the catalog as
text (https://www.postgresql.org/docs/18/datatype.html).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

#: Every supported type by its canonical name, with the other spellings that PostgreSQL and its users know.
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "boolean": ("bool",),
    "smallint": ("int2",),
    "integer": ("int", "int4"),
    "bigint": ("int8",),
    "real": ("float4",),
    "double precision": ("float8", "float"),
    "numeric": ("decimal", "dec"),
    "text": (),
    "character varying": ("varchar", "char varying"),
    "date": (),
    "time without time zone": ("time",),
    "timestamp without time zone": ("timestamp",),
    "timestamp with time zone": ("timestamptz",),
    "uuid": (),
    "jsonb": (),
    "bytea": (),
}
_CANONICAL = {spelling: name for name, others in _SPELLINGS.items() for spelling in (name, *others)}

# jsonb holds arrays itself; in a jsonb[] a JSON null could mean an SQL NULL or the value null, so it is left out.
_TYPES_WITHOUT_ARRAY = frozenset({"jsonb"})

SUPPORTED_TYPES = (
    "boolean, smallint, integer, bigint, real, double precision, numeric, numeric(p,s), text, varchar, varchar(n), "
    "date, time, timestamp, timestamptz, uuid, jsonb, bytea, and an array of any of them but jsonb, such as bigint[]"
)

# PostgreSQL's own bounds; a negative scale or one above the precision exists only since PostgreSQL 15.
MAX_LENGTH = 10_485_760
MAX_PRECISION = 1_000

_SHAPE = re.compile(
    r"(?P<name>[a-z][a-z0-9 ]*?) ?(?:\( ?(?P<first>[0-9]{1,9}) ?(?:, ?(?P<second>[0-9]{1,9}) ?)?\))?"
    r"(?P<array> ?\[ ?\])?",
)


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column type.

    Attributes:
        name: Name without modifiers in PostgreSQL's canonical spelling (``character varying``, ``bigint``).
        precision: Total digits of a ``numeric(p,s)``.
        scale: Digits after the point of a ``numeric(p,s)``; set whenever ``precision`` is.
        length: Greatest number of characters of a ``character varying(n)``.
        is_array: Whether the column holds one-dimensional arrays; the other attributes then describe an element.
    """

    name: str
    precision: int | None = None
    scale: int | None = None
    length: int | None = None
    is_array: bool = False

    @property
    def sql(self) -> str:
        """The type as ``format_type`` spells it: ``character varying(20)``, ``numeric(10,2)``, ``bigint[]``."""
        modifier = ""
        if self.length is not None:
            modifier = f"({self.length})"
        elif self.precision is not None:
            modifier = f"({self.precision},{self.scale})"
        return f"{self.name}{modifier}{'[]' if self.is_array else ''}"

    @property
    def element(self) -> ColumnType:
        """The type of one element; the type itself when it is no array."""
        return ColumnType(self.name, self.precision, self.scale, self.length)


@cache
def parse_column_type(text: str) -> ColumnType:
    """Read a column type in any spelling that PostgreSQL knows for it; upper case and extra spaces do not matter.

    Raises:
        ValueError: The text is no supported type; the message says what is supported.
    """
    shape = _SHAPE.fullmatch(" ".join(text.lower().split()))
    name = _CANONICAL.get(shape["name"]) if shape else None
    if shape is None or name is None:
        raise ValueError(f"one of the supported types: {SUPPORTED_TYPES}")
    first, second = (int(shape[part]) if shape[part] else None for part in ("first", "second"))
    is_array = shape["array"] is not None
    if is_array and name in _TYPES_WITHOUT_ARRAY:
        raise ValueError(f"a type that has arrays: a {name} column holds a JSON array itself, so {name} is enough")
    if first is None:
        return ColumnType(name, is_array=is_array)
    return _with_modifier(name, first, second, is_array=is_array)


def _with_modifier(name: str, first: int, second: int | None, *, is_array: bool) -> ColumnType:
    if name == "character varying" and second is None:
        if not 1 <= first <= MAX_LENGTH:
            raise ValueError(f"varchar(n) with n from 1 to {MAX_LENGTH}")
        return ColumnType(name, length=first, is_array=is_array)
    if name == "numeric":
        scale = second or 0
        if not 1 <= first <= MAX_PRECISION or scale > first:
            raise ValueError(f"numeric(p,s) with p from 1 to {MAX_PRECISION} and s from 0 to p")
        return ColumnType(name, precision=first, scale=scale, is_array=is_array)
    raise ValueError(f"{name} without a number in brackets (only varchar(n) and numeric(p,s) take one)")


def quoted_element(element: bytes) -> bytes:
    """Write an element of an array literal, whatever stands in it.

    Source: https://www.postgresql.org/docs/18/arrays.html, "Array Input and Output Syntax".
    """
    return b'"' + element.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
