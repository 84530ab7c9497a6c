"""COPY's two formats: binary where every column's type has one, else quoted CSV."""

from __future__ import annotations

import binascii
import struct
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from kafka_ingest.column_types import parse_column_type, quoted_element
from spark_jobs.decode.fields import (
    BYTES,
    NO_SEPARATOR,
    Fields,
    Matrix,
    NotBinaryError,
    all_bytes,
    big_endian,
    fixed_bytes,
)
from spark_jobs.decode.texts import rule_for
from spark_jobs.decode.values import HEX_MARK, RECORD_TIME, hex_bytes

# ----------
# Rows as text for COPY: CSV in which every value is quoted and NULL is an empty field without quotes.
#
# It fits every type and every table. Rows of the common types and dead letters travel in binary (``copy_format.py``);
# this format is for the others. Arrow's CSV writer encodes 2 to 4 million rows/s (12 columns); the text format with its
# four escapes would save PostgreSQL nothing: 2.8 µs a row instead of 3.0, and cost the worker as much (PostgreSQL 18.6,
# 16 columns, 10,000 rows a COPY).
#
# The quoting makes it exact (https://www.postgresql.org/docs/18/sql-copy.html, "CSV Format"): quotes are doubled,
# newlines and backslashes stand for themselves inside quotes, a quoted empty field is the empty text and not NULL, and
# ``\.`` ends the data only where it is not quoted.


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
    encode: Callable[[pa.RecordBatch], Pieces]


#: Rows that Arrow writes to one buffer. More are no faster.
_CSV_ROWS = 1_000
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
    marked = pc.binary_join_element_wise(_text(HEX_MARK.decode()), _digits(column.cast(pa.large_binary())), _text(""))
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
    """Write a PostgreSQL array: every element quoted, backslashes and quotes escaped, NULL bare."""
    return b"{" + b",".join(b"NULL" if element is None else quoted_element(element) for element in elements) + b"}"


def _array_literals(lists: pa.Array) -> pa.Array:
    """Write lists of text or bytes as array literals."""
    is_text = pa.types.is_string(lists.type.value_type)
    cells = (
        row if row is None else array_literal(e if e is None else e.encode() if is_text else hex_bytes(e) for e in row)
        for row in lists.to_pylist()
    )
    return pa.array(cells, pa.string(), size=len(lists))


# ----------
# Rows in COPY's binary format, for tables whose column types are all known here.
#
# PostgreSQL takes a row of 16 columns in 2.1 µs of CPU instead of 3.4 as CSV, for 0.3 µs more in the worker (PostgreSQL
# 18.6, 10,000 rows a COPY, 280 bytes a row).
#
# Source: https://www.postgresql.org/docs/18/sql-copy.html, "Binary Format"; what stands in a field is what the type's
# receive function reads (``src/backend/utils/adt`` of PostgreSQL 18: ``numeric_recv``, ``jsonb_recv``, ``time_recv``
# …). Unlike text it is right only for just this type, so the caller compares types before. The rule of a type writes
# its fields (``decode/numbers.py``, ``decode/texts.py``); headers, lengths, rows and arrays are written here.

#: Signature, flags, length of the header's extension.
_HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_TRAILER = b"\xff\xff"
_NULL_LENGTH = -1
_NULL_FIELD = _NULL_LENGTH.to_bytes(4, "big", signed=True)
#: Longer values are not part of a row's template, which is copied with every column.
_MOST_CONSTANT_BYTES = 1_000
#: Elements of an array that are Python objects at the same time.
_BLOCK = 1_000


def binary_format(types: Sequence[str], *, arrays_are_lists: bool = False) -> CopyFormat | None:
    """Return the binary format for columns of these types, or ``None`` when one of them is not known here.

    Not known are arrays as literals, numeric without precision or with more than 16 digits, and domains.

    Args:
        types: Types of the table's columns as ``format_type`` spells them, in the order of the rows' columns. A column
            must hold what ``spark_jobs.decode.values.DecodedBatch`` says for its type; a text that does not name a
            value makes ``encode`` raise ``NotBinaryError``.
        arrays_are_lists: Whether arrays, of text or bytea, are Arrow lists and not literals.
    """
    lists = _LISTS if arrays_are_lists else {}
    fields = [lists.get(type_name) or _fields_of(type_name) for type_name in types]
    known = [of for of in fields if of is not None]
    return CopyFormat("FORMAT binary", partial(_encode, known)) if len(known) == len(fields) else None


def _fields_of(type_name: str) -> Fields | None:
    try:
        column_type = parse_column_type(type_name)
    except ValueError:
        return None
    return rule_for(column_type).fields if column_type.sql == type_name else None


def _encode(fields: Sequence[Fields], rows: pa.RecordBatch) -> Pieces:
    if not rows.num_rows:
        return Pieces(_HEADER, _TRAILER)
    tuples = _Tuples(rows.num_rows, rows.num_columns)
    try:
        for of, column in zip(fields, rows.columns, strict=True):
            if _is_constant(column):
                tuples.add_constant(of(column[:1]))
            else:
                tuples.add(of(column))
    except (pa.ArrowInvalid, binascii.Error) as error:
        raise NotBinaryError(str(error)) from error
    return Pieces(_HEADER, tuples.joined(), _TRAILER)


def _is_constant(column: pa.Array) -> bool:
    """Tell whether all rows hold the same value, as in most metadata columns."""
    if column.null_count or not _is_comparable(column.type) or column.nbytes > _MOST_CONSTANT_BYTES * len(column):
        return False
    if not column[0].equals(column[-1]):
        return False
    return bool(pc.all(pc.equal(column, column[0])).as_py())


def _is_comparable(arrow_type: pa.DataType) -> bool:
    # Floats may be equal and still differ: 0.0 and -0.0. Arrow compares no lists.
    return not pa.types.is_floating(arrow_type) and not pa.types.is_list(arrow_type)


class _Tuples:
    """The fields of all rows, side by side.

    Fields of the same width in all rows are collected in a matrix, byte by byte of its row; where the width differs,
    the matrix ends and the values are a piece of their own. Joining the pieces of a row gives its tuple.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self._rows = rows
        self._pieces: list[pa.Array] = []
        self._matrix = Matrix(columns.to_bytes(2, "big"))

    def add_constant(self, field: pa.Array) -> None:
        """Add a column with the same field in all rows."""
        data = field[0].as_py()
        self._matrix.add_constant(len(data).to_bytes(4, "big") + data)

    def add(self, fields: pa.Array) -> None:
        """Add the next column."""
        if pa.types.is_fixed_size_binary(fields.type) and not fields.null_count:
            self._matrix.add_constant(fields.type.byte_width.to_bytes(4, "big"))
            self._matrix.add(fixed_bytes(fields), fields.type.byte_width)
            return
        values = fields.cast(BYTES)
        lengths = pc.fill_null(pc.binary_length(values), _NULL_LENGTH).cast(pa.int32())
        self._matrix.add(big_endian(lengths), 4)
        self._end_matrix()
        self._pieces.append(values)

    def joined(self) -> pa.Buffer:
        """Return all tuples, row after row."""
        self._end_matrix()
        tuples = pc.binary_join_element_wise(*self._pieces, NO_SEPARATOR, null_handling="replace", null_replacement="")
        return all_bytes(tuples)

    def _end_matrix(self) -> None:
        if self._matrix.width:
            self._pieces.append(self._matrix.fields(self._rows).cast(BYTES))
        self._matrix = Matrix()


def _list(element_oid: int, lists: pa.Array) -> pa.Array:
    """Arrays of one dimension (``array_recv``, src/backend/utils/adt/arrayfuncs.c of PostgreSQL 18)."""
    values = lists.values.cast(BYTES)
    bounds = zip(lists.offsets.to_pylist(), lists.offsets.to_pylist()[1:], lists.is_valid().to_pylist(), strict=False)
    fields = (_list_field(element_oid, values[begin:end]) if is_there else None for begin, end, is_there in bounds)
    return pa.array(fields, BYTES, size=len(lists))


def _list_field(element_oid: int, elements: pa.Array) -> bytes:
    count = len(elements)
    if not count:
        return struct.pack(">iiI", 0, 0, element_oid)
    field = bytearray(struct.pack(">iiIii", 1, int(elements.null_count > 0), element_oid, count, 1))
    for block in range(0, count, _BLOCK):  # not all at once: a Python object takes many times an element's bytes
        for element in elements[block : block + _BLOCK].to_pylist():
            field += _NULL_FIELD if element is None else len(element).to_bytes(4, "big") + element
    return bytes(field)


#: With the oid of the elements' type, which for built-in types never changes (``pg_type.dat``).
_LISTS: Mapping[str, Fields] = {"text[]": partial(_list, 25), "bytea[]": partial(_list, 17)}
