"""Fields of PostgreSQL's binary COPY, a whole column at once: what the encoders of the types are made of.

Everything is done with Arrow's kernels and slices of bytes. ``copy_format.py`` puts the fields into tuples.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

#: Writes a column's fields without their lengths: fixed_size_binary or large_binary, null where NULL.
Fields = Callable[[pa.Array], pa.Array]

BYTES = pa.large_binary()
NO_SEPARATOR = pa.scalar(b"", BYTES)
_SIGNED = {1: "b", 2: "h", 4: "i", 8: "q"}


class NotBinaryError(ValueError):
    """A text that names no value of its type, in the spelling that decoding gives."""


class Matrix:
    """Rows of one width; built from a row's template and, for each of its other bytes, a column of bytes."""

    def __init__(self, template: bytes = b"") -> None:
        self._template = template
        self._columns: list[tuple[int, bytes]] = []

    @property
    def width(self) -> int:
        """Bytes of a row so far."""
        return len(self._template)

    def add_constant(self, data: bytes) -> None:
        """Add bytes that all rows share."""
        self._template += data

    def add(self, data: bytes, width: int) -> None:
        """Add ``width`` bytes a row; a byte that all rows share, as in most lengths, goes into the template."""
        for place in range(width):
            column = data[place::width]
            if column != column[:1] * len(column):
                self._columns.append((self.width, column))
            self._template += column[:1]

    def fields(self, rows: int) -> pa.Array:
        """Return the rows."""
        matrix = bytearray(self._template * rows)
        for place, column in self._columns:
            matrix[place :: self.width] = column
        return fixed_fields(matrix, self.width, rows)


def fixed_fields(data: bytes | bytearray, width: int, rows: int) -> pa.Array:
    """Return fields of one width from their bytes, one after another."""
    return pa.Array.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(data)])


def fixed_bytes(values: pa.Array) -> bytes:
    """Return the bytes of values of one width."""
    width = values.type.bit_width // 8
    data: bytes = values.buffers()[1][values.offset * width : (values.offset + len(values)) * width].to_pybytes()
    return data


def big_endian(values: pa.Array) -> bytes:
    """Return the bytes of numbers without null, most significant first."""
    numbers = array(_SIGNED[values.type.bit_width // 8], fixed_bytes(values))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def with_nulls_of(column: pa.Array, fields: pa.Array) -> pa.Array:
    """Return the fields, null where the column is."""
    return pc.if_else(column.is_valid(), fields, pa.scalar(None, fields.type)) if column.null_count else fields


def number_fields(numbers: pa.Array) -> pa.Array:
    """Write integers and floats, in network order."""
    data = big_endian(pc.fill_null(numbers, 0))
    return with_nulls_of(numbers, fixed_fields(data, numbers.type.bit_width // 8, len(numbers)))


def byte_fields(column: pa.Array) -> pa.Array:
    """Write text in UTF-8, and bytea: the bytes themselves."""
    return column.cast(BYTES)


def all_bytes(values: pa.Array) -> pa.Buffer:
    """Return the values, of which none is null, one after another."""
    _, ends, data = values.buffers()
    bounds = pa.Array.from_buffers(pa.int64(), len(values) + 1, [None, ends], offset=values.offset)
    return data[bounds[0].as_py() : bounds[-1].as_py()]
