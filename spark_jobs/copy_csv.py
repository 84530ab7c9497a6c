r"""Rows as text for COPY: CSV in which every value is quoted and NULL is an empty field without quotes.

It fits every type and every table. Rows of the common types and dead letters travel in binary (``copy_binary.py``);
this format is for the others. Arrow's CSV writer encodes 2 to 4 million rows/s (12 columns); the text format with its
four escapes would save PostgreSQL nothing: 2.8 µs a row instead of 3.0, and cost the worker as much (PostgreSQL 18.6,
16 columns, 10,000 rows a COPY).

The quoting makes it exact (https://www.postgresql.org/docs/18/sql-copy.html, "CSV Format"): quotes are doubled,
newlines and backslashes stand for themselves inside quotes, a quoted empty field is the empty text and not NULL, and
``\.`` ends the data only where it is not quoted.
"""

from __future__ import annotations

import binascii
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from spark_jobs.decode.values import RECORD_TIME


class CopyData(Protocol):
    """What ``copy_expert`` reads."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next ``size`` bytes, or what is left; all of it for a negative size."""


class Pieces:
    """Buffers read one after another, each released when it is read; joining them would take twice the memory.

    Arrow also writes to it, as to a file.
    """

    closed = False

    def __init__(self, *pieces: bytes | pa.Buffer) -> None:
        self._left: deque[memoryview[int]] = deque(memoryview(piece) for piece in pieces)

    def write(self, piece: bytes | pa.Buffer) -> int:
        """Add a copy of a piece at the end: Arrow writes the next rows into the same buffer (``csv.write_csv``, 26)."""
        self._left.append(memoryview(bytes(piece)))
        return len(piece)

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, fewer than ``size`` only at the end; all of them for a negative size."""
        taken: list[memoryview[int]] = []
        while self._left and size != 0:
            piece = self._left.popleft()
            if 0 < size < len(piece):
                self._left.appendleft(piece[size:])
                piece = piece[:size]
            taken.append(piece)
            size -= len(piece) if size > 0 else 0
        return b"".join(taken)

    def close(self) -> None:
        """End writing; what was written can be read."""

    def flush(self) -> None:
        """Do nothing: each piece is there as soon as it is written."""


@dataclass(frozen=True, slots=True)
class CopyFormat:
    """A format in which rows travel.

    Attributes:
        options: Options of ``COPY … FROM STDIN`` that read what ``encode`` writes.
        encode: Returns rows, columns in the batch's order, as a file to read.
    """

    options: str
    encode: Callable[[pa.RecordBatch], CopyData]


#: Rows that Arrow writes to one buffer. More are no faster.
_CSV_ROWS = 1_000
_HEX_MARK = "\\x"
_HEX_TYPE = pa.large_string()
_SCALARS_WITH_EXACT_TEXT = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_integer,
    pa.types.is_boolean,
    # Arrow writes the shortest text that reads back as the same float; PostgreSQL reads "nan", "inf" and "-inf".
    pa.types.is_floating,
)


def encode(rows: pa.RecordBatch) -> Pieces:
    """Encode rows for COPY, columns in the batch's order.

    Args:
        rows: Columns of text (PostgreSQL's input text for any type), integers, booleans, floats, bytes, record times.

    Raises:
        TypeError: A column of another type; it could not be written exactly.
    """
    columns = [_with_exact_text(column, name) for name, column in zip(rows.schema.names, rows.columns, strict=True)]
    data = Pieces()
    if rows.num_rows:
        options = csv.WriteOptions(include_header=False, quoting_style="all_valid", batch_size=_CSV_ROWS)
        batch = pa.RecordBatch.from_arrays(columns, names=[str(n) for n in range(len(columns))])
        csv.write_csv(batch, pa.PythonFile(data, mode="w"), options)
    return data


CSV = CopyFormat("FORMAT csv, NULL '', ENCODING 'UTF8'", encode)


def _with_exact_text(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return hex_text(column)
    if pa.types.is_list(column.type):
        return _array_literals(column)
    if column.type == RECORD_TIME:
        return column.cast(pa.string())
    if any(is_type(column.type) for is_type in _SCALARS_WITH_EXACT_TEXT):
        return column
    raise TypeError(f"column {name}: COPY has no exact text for Arrow type {column.type}")


def hex_text(column: pa.Array) -> pa.Array:
    r"""Write bytes as bytea's hex input, ``\x00ff``; nulls stay nulls.

    Works on the buffers as a whole, so it costs one ``binascii.hexlify`` and not a call for each value.
    """
    marked = pc.binary_join_element_wise(_text(_HEX_MARK), _digits(column.cast(pa.large_binary())), _text(""))
    return pc.if_else(column.is_valid(), marked, _text(None)) if column.null_count else marked


def _digits(packed: pa.Array) -> pa.Array:
    """Write bytes as hexadecimal digits; the digits at a null mean nothing."""
    _, offsets_buffer, data_buffer = packed.buffers()
    offsets = pa.Array.from_buffers(pa.int64(), len(packed) + 1, [None, offsets_buffer], offset=packed.offset)
    first, end = offsets[0].as_py(), offsets[-1].as_py()
    digits = binascii.hexlify(data_buffer[first:end]) if end > first else b""
    doubled = pc.multiply(pc.subtract(offsets, first), pa.scalar(2, pa.int64()))
    return pa.Array.from_buffers(_HEX_TYPE, len(packed), [None, doubled.buffers()[1], pa.py_buffer(digits)])


def _text(value: str | None) -> pa.Scalar:
    return pa.scalar(value, _HEX_TYPE)


def array_literal(elements: Iterable[bytes | None]) -> bytes:
    r"""Write a PostgreSQL array: every element quoted, backslashes and quotes escaped, NULL bare.

    Source: https://www.postgresql.org/docs/18/arrays.html, "Array Input and Output Syntax".
    """
    return b"{" + b",".join(b"NULL" if element is None else quoted_element(element) for element in elements) + b"}"


def quoted_element(element: bytes) -> bytes:
    """Write an element of an array literal, whatever stands in it."""
    return b'"' + element.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _array_literals(lists: pa.Array) -> pa.Array:
    """Write lists of text or bytes as array literals."""
    is_text = pa.types.is_string(lists.type.value_type)
    cells = (
        row if row is None else array_literal(e if e is None else e.encode() if is_text else hex_bytes(e) for e in row)
        for row in lists.to_pylist()
    )
    return pa.array(cells, pa.string(), size=len(lists))


def hex_bytes(data: bytes) -> bytes:
    r"""Write bytes as bytea's hex input, ``\x00ff``."""
    return _HEX_MARK.encode() + binascii.hexlify(data)
