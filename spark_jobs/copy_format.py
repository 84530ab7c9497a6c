r"""How rows travel in COPY as text: as CSV in which every value is quoted and NULL is an empty field without quotes.

It fits every type and every table. Rows of the common types travel in binary (``copy_binary.py``); this format is for
the others and for dead letters. Arrow's CSV writer encodes 2 to 4 million rows/s (12 columns); the text format with its
four escapes would save PostgreSQL nothing: 2.8 µs a row instead of 3.0, and cost the worker as much (PostgreSQL 18.6,
16 columns, 10,000 rows a COPY).

The quoting makes it exact (https://www.postgresql.org/docs/18/sql-copy.html, "CSV Format"): quotes are doubled,
newlines and backslashes stand for themselves inside quotes, a quoted empty field is the empty text and not NULL, and
``\.`` ends the data only where it stands without quotes.
"""

from __future__ import annotations

import binascii
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from spark_jobs.decode.decoded import RECORD_TIME


class CopyData(Protocol):
    """What ``copy_expert`` reads."""

    def read(self, size: int = -1, /) -> bytes:
        """Gives the next ``size`` bytes, or what is left; all of it for a negative size."""


@dataclass(frozen=True, slots=True)
class CopyFormat:
    """A way in which rows travel.

    Attributes:
        options: Options of ``COPY … FROM STDIN`` that read what ``encode`` writes.
        encode: Gives rows, columns in the batch's order, as a file to read.
    """

    options: str
    encode: Callable[[pa.RecordBatch], CopyData]


_HEX_MARK = "\\x"
_HEX_TYPE = pa.large_string()
_SCALARS_WITH_EXACT_TEXT = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_integer,
    pa.types.is_boolean,
    # Arrow writes the shortest text that reads back as the same float; "nan", "inf" and "-inf" are read by PostgreSQL.
    pa.types.is_floating,
)


def encode(rows: pa.RecordBatch) -> io.BytesIO:
    """Encodes rows for COPY, columns in the batch's order.

    Args:
        rows: Columns of text (PostgreSQL's input text for any type), integers, booleans, floats, bytes, record times.

    Raises:
        TypeError: A column of another type; it could not be written exactly.
    """
    columns = [_with_exact_text(column, name) for name, column in zip(rows.schema.names, rows.columns, strict=True)]
    data = io.BytesIO()
    if rows.num_rows:
        options = csv.WriteOptions(include_header=False, quoting_style="all_valid", batch_size=rows.num_rows)
        csv.write_csv(pa.RecordBatch.from_arrays(columns, names=[str(n) for n in range(len(columns))]), data, options)
        data.seek(0)
    return data


CSV = CopyFormat("FORMAT csv, NULL '', ENCODING 'UTF8'", encode)


def _with_exact_text(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return hex_text(column)
    if column.type == RECORD_TIME:
        return column.cast(pa.string())
    if any(is_type(column.type) for is_type in _SCALARS_WITH_EXACT_TEXT):
        return column
    raise TypeError(f"column {name}: COPY has no exact text for Arrow type {column.type}")


def hex_text(column: pa.Array) -> pa.Array:
    r"""Writes bytes as bytea's hex input, ``\x00ff``; nulls stay nulls.

    Works on the buffers as a whole, so the cost is that of ``binascii.hexlify`` and not of one call for each value.
    """
    packed = column.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = packed.buffers()
    offsets = pa.Array.from_buffers(pa.int64(), len(packed) + 1, [None, offsets_buffer], offset=packed.offset)
    first, end = offsets[0].as_py(), offsets[-1].as_py()
    digits = binascii.hexlify(data_buffer[first:end]) if end > first else b""
    doubled = pc.multiply(pc.subtract(offsets, first), pa.scalar(2, pa.int64()))
    text = pa.Array.from_buffers(_HEX_TYPE, len(packed), [None, doubled.buffers()[1], pa.py_buffer(digits)])
    marked = pc.binary_join_element_wise(_text(_HEX_MARK), text, _text(""))
    return pc.if_else(packed.is_valid(), marked, _text(None))


def _text(value: str | None) -> pa.Scalar:
    return pa.scalar(value, _HEX_TYPE)


def array_literal(elements: Sequence[str | None]) -> str:
    r"""Writes a PostgreSQL array of texts: every element quoted, backslashes and quotes escaped, NULL bare.

    Source: https://www.postgresql.org/docs/18/arrays.html, "Array Input and Output Syntax".
    """
    return "{" + ",".join("NULL" if element is None else _quoted_element(element) for element in elements) + "}"


def _quoted_element(element: str) -> str:
    escaped = element.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def bytea_array_literal(elements: Sequence[bytes | None]) -> str:
    r"""Writes a PostgreSQL array of bytea; each element as ``"\\x…"``."""
    return array_literal([None if element is None else f"{_HEX_MARK}{element.hex()}" for element in elements])
