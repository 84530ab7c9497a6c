from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.copy_format import array_literal, encode, hex_text
from spark_jobs.decode.values import RECORD_TIME, hex_bytes


def encoded(values: list[Any], arrow_type: pa.DataType) -> bytes:
    # A second column keeps a lone NULL visible: it is the empty field before the comma.
    ones = pa.array([1] * len(values), pa.int16())
    batch = pa.RecordBatch.from_arrays([pa.array(values, arrow_type), ones], names=["v", "one"])
    return encode(batch).read()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("plain", b'"plain"'),
        ("", b'""'),
        ('say "hi"', b'"say ""hi"""'),
        ("a,b", b'"a,b"'),
        ("line\nfeed", b'"line\nfeed"'),
        ("carriage\rreturn\r\n", b'"carriage\rreturn\r\n"'),
        ("back\\slash\\n", b'"back\\slash\\n"'),
        ("\\.", b'"\\."'),
        ("\\N", b'"\\N"'),
        ("tab\there", b'"tab\there"'),
        ("é €", b'"\xc3\xa9 \xe2\x82\xac"'),
        ('{"a": "x\\"y"}', b'"{""a"": ""x\\""y""}"'),
    ],
)
def test_text_is_quoted_whole(text: str, field: bytes) -> None:
    assert encoded([text], pa.string()) == field + b',"1"\n'


def test_more_rows_than_arrow_writes_at_once_are_all_there_in_their_order() -> None:
    numbers = range(3_500)
    assert encoded([f"row {n}" for n in numbers], pa.string()) == "".join(f'"row {n}","1"\n' for n in numbers).encode()


def test_null_and_empty_text_stay_apart() -> None:
    assert encoded([None, ""], pa.string()) == b',"1"\n"","1"\n'


@pytest.mark.parametrize(
    ("value", "arrow_type", "field"),
    [
        (-32768, pa.int16(), b'"-32768"'),
        (2147483647, pa.int32(), b'"2147483647"'),
        (-9223372036854775808, pa.int64(), b'"-9223372036854775808"'),
        (True, pa.bool_(), b'"true"'),
        (False, pa.bool_(), b'"false"'),
        (None, pa.bool_(), b""),
        (None, pa.int64(), b""),
        (b"", pa.large_binary(), b'"\\x"'),
        (b"\x00\xff\\", pa.large_binary(), b'"\\x00ff5c"'),
        (b"ab", pa.binary(), b'"\\x6162"'),
        (None, pa.large_binary(), b""),
        (-1, RECORD_TIME, b'"1969-12-31 23:59:59.999Z"'),
        (-62_135_596_800_000, RECORD_TIME, b'"0001-01-01 00:00:00.000Z"'),
        (None, RECORD_TIME, b""),
    ],
)
def test_scalars_keep_their_exact_text(value: Any, arrow_type: pa.DataType, field: bytes) -> None:
    assert encoded([value], arrow_type) == field + b',"1"\n'


@pytest.mark.parametrize(
    "number",
    [0.1, -0.0, 1 / 3, 1e308, 5e-324, 123456789.123456789, 2.0**53 + 2, math.inf, -math.inf],
)
def test_floats_read_back_as_the_same_float(number: float) -> None:
    field = encoded([number], pa.float64()).split(b",")[0].strip(b'"').decode()
    assert float(field) == number
    assert math.copysign(1, float(field)) == math.copysign(1, number)


def test_not_a_number_is_written_by_name() -> None:
    assert encoded([math.nan], pa.float64()) == b'"nan","1"\n'


def test_hex_text_works_on_a_slice() -> None:
    whole = pa.array([b"skip", b"\x01", None, b"", b"\xab\xcd"], pa.large_binary())
    assert hex_text(whole.slice(1)).to_pylist() == ["\\x01", None, "\\x", "\\xabcd"]


def test_hex_text_of_nothing_is_nothing() -> None:
    assert hex_text(pa.array([], pa.large_binary())).to_pylist() == []
    assert hex_text(pa.array([None, None], pa.large_binary())).to_pylist() == [None, None]


def test_no_rows_are_no_bytes() -> None:
    assert encoded([], pa.string()) == b""


def test_a_type_without_exact_text_is_refused() -> None:
    with pytest.raises(TypeError, match="column v: COPY has no exact text for Arrow type timestamp"):
        encoded([0], pa.timestamp("ns"))


def test_array_literals_quote_every_element() -> None:
    assert array_literal([]) == b"{}"
    assert array_literal([b"a", None, b"", b"NULL", b'q"', b"b\\", b"c,{}"]) == (
        b'{"a",NULL,"","NULL","q\\"","b\\\\","c,{}"}'
    )
    assert array_literal([hex_bytes(b"\x00\x5c"), hex_bytes(b"")]) == b'{"\\\\x005c","\\\\x"}'
