from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from kafka_ingest.column_types import parse_column_type
from spark_jobs.copy_format import binary_format
from spark_jobs.decode.fields import NotBinaryError
from spark_jobs.decode.texts import rule_for
from spark_jobs.decode.values import RECORD_TIME
from tests.values import VALUES

TABLE = [(parse_column_type(value.column), value) for value in VALUES]
SIGNATURE = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER = b"\xff\xff"


def encoded(type_name: str, values: list[Any], arrow_type: pa.DataType | None = None) -> bytes:
    """Return the tuples of one column, without what stands around them."""
    copy_format = binary_format([type_name])
    assert copy_format is not None
    rows = pa.RecordBatch.from_arrays([pa.array(values, arrow_type or pa.string())], names=["v"])
    data = copy_format.encode(rows).read()
    assert data.startswith(SIGNATURE)
    assert data.endswith(TRAILER)
    return data[len(SIGNATURE) : -len(TRAILER)]


def field(data: bytes | None) -> bytes:
    """Return a tuple of one field, as PostgreSQL's manual describes it."""
    return b"\x00\x01" + (b"\xff\xff\xff\xff" if data is None else struct.pack(">i", len(data)) + data)


# Fields worked out by hand from the receive functions: numeric is ndigits, weight, sign, dscale, digits to base 10,000;
# times are microseconds, and dates days, since 2000-01-01.
FIELDS: list[tuple[str, Any, pa.DataType | None, bytes]] = [
    *((of.sql, v.cell, rule_for(of).arrow_type, v.binary) for of, v in TABLE if v.binary is not None),
    ("timestamp with time zone", 946_684_799_999, RECORD_TIME, bytes.fromhex("fffffffffffffc18")),
    ("timestamp with time zone", 253_402_300_799_999, RECORD_TIME, bytes.fromhex("0380e70b913b7c18")),
]


@pytest.mark.parametrize(("type_name", "value", "arrow_type", "expected"), FIELDS)
def test_a_value_is_the_field_that_postgresql_receives(
    type_name: str, value: Any, arrow_type: pa.DataType | None, expected: bytes
) -> None:
    assert encoded(type_name, [value], arrow_type) == field(expected)


@pytest.mark.parametrize(("type_name", "value", "arrow_type", "expected"), FIELDS)
def test_null_has_no_field_and_leaves_its_neighbours_alone(
    type_name: str, value: Any, arrow_type: pa.DataType | None, expected: bytes
) -> None:
    whole = field(expected)
    assert encoded(type_name, [value, None, value], arrow_type) == whole + field(None) + whole


def test_columns_of_every_width_stand_side_by_side_in_their_order() -> None:
    copy_format = binary_format(["text", "integer", "text", "bigint", "text"])
    assert copy_format is not None
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(["skip", "orders", "orders"]),
            pa.array([0, 1, 2], pa.int32()),
            pa.array(["skip", "a", None]),
            pa.array([0, 256, None], pa.int64()),
            pa.array(["skip", "", "bc"]),
        ],
        names=list("abcde"),
    )

    data = copy_format.encode(rows.slice(1)).read()

    first = b"\0\5\0\0\0\6orders\0\0\0\4\0\0\0\1\0\0\0\1a\0\0\0\x08\0\0\0\0\0\0\1\0\0\0\0\0"
    second = b"\0\5\0\0\0\6orders\0\0\0\4\0\0\0\2\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\2bc"
    assert data == SIGNATURE + first + second + TRAILER


def test_zeros_that_are_equal_keep_their_signs() -> None:
    zero, negative = field(bytes(8)), field(b"\x80" + bytes(7))
    assert encoded("double precision", [0.0, -0.0, 0.0], pa.float64()) == zero + negative + zero


def test_no_rows_are_a_header_and_a_trailer() -> None:
    assert encoded("uuid", []) == b""


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        ("numeric(4,2)", "100.00"),
        ("numeric(4,2)", "1.234"),
        ("numeric(4,2)", "no number"),
        ("uuid", "6d0f6e5c"),
        ("uuid", "g" * 32),
        ("date", "2026-02-30"),
        ("time without time zone", "25:00:00"),
        ("timestamp without time zone", "2026-01-01T00:00:00Z"),
        ("timestamp with time zone", "2026-01-01T00:00:00"),
    ],
)
def test_a_text_that_names_no_value_is_not_written(type_name: str, text: str) -> None:
    with pytest.raises(NotBinaryError):
        encoded(type_name, [text])


def test_two_wrong_uuids_do_not_make_right_ones_together() -> None:
    with pytest.raises(NotBinaryError, match="a UUID without 32 digits"):
        encoded("uuid", ["0" * 31, "0" * 33])


@pytest.mark.parametrize("type_name", ["numeric", "numeric(17,2)", "integer[]", "text[]", "shop.code", "xml"])
def test_a_table_with_another_type_is_not_copied_in_binary(type_name: str) -> None:
    assert binary_format(["text", type_name]) is None


@pytest.mark.parametrize("size", [1, 7, 19, 64, 1 << 16])
def test_copy_reads_the_same_bytes_in_pieces_of_any_size(size: int) -> None:
    copy_format = binary_format(["text", "integer"])
    assert copy_format is not None
    texts, numbers = pa.array(["a", None, "ccc"]), pa.array([1, 2, None], pa.int32())
    rows = pa.RecordBatch.from_arrays([texts, numbers], names=["a", "b"])
    data = copy_format.encode(rows)
    pieces = list(iter(lambda: data.read(size), b""))
    assert all(len(piece) == size for piece in pieces[:-1])
    assert b"".join(pieces) == copy_format.encode(rows).read()
