"""Decoded values, copied into a real table as a staging task copies them, are the values that the JSON named."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import psycopg2
import psycopg2.extras
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_ingest.column_types import parse_column_type
from spark_jobs.copy_format import CSV, CopyFormat, binary_format
from spark_jobs.decode.json import MAX_NESTING, JsonColumns
from spark_jobs.decode.numbers import MAX_SCALE, DecimalText
from spark_jobs.decode.values import ColumnPlan


class Table:
    """A table with one column ``a``, and a session whose settings must not matter."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        extras: Any = psycopg2.extras
        extras.register_uuid(conn_or_curs=self._cursor)
        # Numbers as Decimal, so that a comparison sees every digit.
        extras.register_default_jsonb(self._cursor, loads=partial(json.loads, parse_float=Decimal, parse_int=Decimal))
        self._cursor.execute("SET datestyle = 'SQL, DMY'; SET timezone = 'Asia/Kolkata'")
        connection.commit()

    def read_back(self, type_name: str, *raws: str) -> list[Any]:
        """Decodes JSON values, copies them, and reads the column; every value must be accepted by both."""
        plan = ColumnPlan("a", parse_column_type(type_name), ("a",))
        documents = [f'{{"a": {raw}}}'.encode() for raw in raws]
        part = JsonColumns([plan]).decode(pa.array(documents, pa.large_binary()))
        assert part.decode_errors == {}
        rows = pa.RecordBatch.from_arrays(list(part.arrays), ["a"])
        found = self._copied(type_name, rows, CSV)
        if binary := binary_format([plan.type.sql]):
            assert self._copied(type_name, rows, binary) == found
        return [value for value, _ in found]

    def _copied(self, type_name: str, rows: pa.RecordBatch, copy_format: CopyFormat) -> list[tuple[Any, str]]:
        """Each value, and PostgreSQL's text for it, which also shows the scale of a numeric and a zero's sign."""
        try:
            self._cursor.execute(f"CREATE TEMPORARY TABLE t (n serial, a {type_name}) ON COMMIT DROP")
            self._cursor.copy_expert(f"COPY t (a) FROM STDIN WITH ({copy_format.options})", copy_format.encode(rows))
            # psycopg2 reads times in the ISO style only.
            self._cursor.execute("SET LOCAL datestyle = 'ISO'; SELECT a, a::text FROM t ORDER BY n")
            found = self._cursor.fetchall()
            return [(bytes(value) if isinstance(value, memoryview) else value, text) for value, text in found]
        finally:
            self._connection.rollback()


@pytest.fixture
def table(database: dict[str, Any]) -> Iterator[Table]:
    with closing(psycopg2.connect(**database)) as connection:
        yield Table(connection)


def test_a_number_with_an_exponent_reads_as_if_it_were_written_out(table: Table) -> None:
    numbers = ["1e131071", "-12e40", "1e-16383", "1.50e-30", "0." + "0" * 16_380 + "5000", "7e17", "-3e-18"]
    plain = [DecimalText.parse(number).plain(max_scale=MAX_SCALE) for number in numbers]  # type: ignore[union-attr]
    found, written = table.read_back("numeric", *numbers), table.read_back("numeric", *plain)
    assert [str(value) for value in found] == [str(value) for value in written]
    assert [f"{value:f}" for value in found] == plain


def at(*parts: int, minutes: int = 0) -> datetime:
    return datetime(*parts, tzinfo=timezone(timedelta(minutes=minutes)))  # type: ignore[misc,arg-type]


VALUES: dict[str, dict[str, Any]] = {
    "boolean": {"true": True, "false": False, "null": None},
    "smallint": {"-32768": -32768, "32767.0": 32767},
    "integer": {"-2147483648": -(2**31), "1e2": 100, "null": None},
    "bigint": {"9223372036854775807": 2**63 - 1, "9007199254740993.0": 9007199254740993},
    "double precision": {
        "0.1": 0.1,
        "0.30000000000000004": 0.30000000000000004,
        "5e-324": 5e-324,
        "1.7976931348623157e308": 1.7976931348623157e308,
        "36893488147419103232": 2.0**65,
    },
    "numeric": {
        "0.1234567890123456789": Decimal("0.1234567890123456789"),
        '"-1e3"': Decimal(-1000),
        "1e131071": Decimal(10) ** 131_071,
        "1e-16383": Decimal(1).scaleb(-16_383),
        "0e999999999": Decimal(0),
        "-0.00": Decimal(0),
    },
    "numeric(5,2)": {"999.99": Decimal("999.99"), "-1.5000": Decimal("-1.5"), "12345e-2": Decimal("123.45")},
    "numeric(2,2)": {"0.99": Decimal("0.99"), "-0.01": Decimal("-0.01"), "0": Decimal(0)},
    "text": {
        '""': "",
        '"null"': "null",
        r'"\\N \\. \"q\" \n\r\t"': '\\N \\. "q" \n\r\t',
        r'"\\u0000"': "\\u0000",
        r'"\ud83d\ude00\uffff"': "\U0001f600\uffff",
        '" spaces "': " spaces ",
    },
    "varchar(3)": {'"\U0001f600\U0001f600\U0001f600"': "\U0001f600" * 3, '"a  "': "a  "},
    "date": {'"0001-01-01"': date(1, 1, 1), '"9999-12-31"': date(9999, 12, 31), '"2024-02-29"': date(2024, 2, 29),
             '"2026-03-04"': date(2026, 3, 4)},
    "time": {'"23:59:59.999999"': time(23, 59, 59, 999_999), '"01:02"': time(1, 2), '"00:00:00"': time(0)},
    "timestamp": {
        '"2026-03-04T01:02:03.000001"': datetime(2026, 3, 4, 1, 2, 3, 1),  # noqa: DTZ001  the type has no zone
        '"0001-01-01 00:00:00"': datetime(1, 1, 1),  # noqa: DTZ001
        '"9999-12-31T23:59:59.999999"': datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001
    },
    "timestamptz": {
        '"2026-03-04T01:02:03.004Z"': at(2026, 3, 4, 1, 2, 3, 4_000),
        '"2026-03-04T01:02:03+05:30"': at(2026, 3, 4, 1, 2, 3, minutes=330),
        '"2026-03-04T01:02:03-14:59"': at(2026, 3, 4, 1, 2, 3, minutes=-899),
        '"2026-03-04T01:02:03+23:59"': at(2026, 3, 4, 1, 2, 3, minutes=1_439),
        '"0001-01-01T12:00:00Z"': at(1, 1, 1, 12),
        '"1000-01-01T00:00:00Z"': at(1000, 1, 1),
    },
    "uuid": {
        '"6D0F6E5C-3F0A-4A39-9D1F-0D5F3F7C9A10"': UUID("6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10"),
        '"6d0f6e5c3f0a4a399d1f0d5f3f7c9a10"': UUID("6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10"),
    },
    "bytea": {'""': b"", '"AP8iXAo="': b'\x00\xff"\\\n'},
    "jsonb": {
        r'{"a": "\\u0000", "b": [1, null, 2.50]}': {"a": "\\u0000", "b": [1, None, Decimal("2.50")]},
        "0.12345678901234567890123456789": Decimal("0.12345678901234567890123456789"),
        '{"k": 1, "k": 2}': {"k": 2},
        "1e-16383": Decimal(1).scaleb(-16_383),
        "0e131072": 0,
        r'"\ud83d\ude00"': "\U0001f600",
    },
    "integer[]": {"[]": [], "[1, null, -3]": [1, None, -3]},
    "boolean[]": {"[true, false, null]": [True, False, None]},
    "double precision[]": {"[0.1, 5e-324, -1e22]": [0.1, 5e-324, -1e22]},
    "numeric[]": {"[1e131071, -1.50e-30, null]": [Decimal(10) ** 131_071, Decimal("-1.50e-30"), None]},
    "numeric(5,2)[]": {'[1.50, "2.5"]': [Decimal("1.50"), Decimal("2.50")]},
    "text[]": {
        r'["", "NULL", "null", null, "a,b", "{x}", "q\"", "\\", " s ", "\n"]':
            ["", "NULL", "null", None, "a,b", "{x}", 'q"', "\\", " s ", "\n"],
    },
    "date[]": {'["2026-03-04", null]': [date(2026, 3, 4), None]},
    "timestamptz[]": {'["2026-03-04T01:02:03Z"]': [at(2026, 3, 4, 1, 2, 3)]},
}  # fmt: skip


@pytest.mark.parametrize("type_name", VALUES)
def test_a_decoded_value_is_stored_as_the_value_that_was_named(table: Table, type_name: str) -> None:
    assert table.read_back(type_name, *VALUES[type_name]) == list(VALUES[type_name].values())


def test_floats_keep_every_bit(table: Table) -> None:
    assert str(table.read_back("double precision", "-0.0")[0]) == "-0.0"
    reals = {"0.1": "3dcccccd", "0.10000000149011612": "3dcccccd", "3.4028235e38": "7f7fffff", "1e-45": "00000001",
             "-0.0": "80000000"}  # fmt: skip
    found = table.read_back("real", *reals)
    assert [struct.pack(">f", value).hex() for value in found] == list(reals.values())
    (found_array,) = table.read_back("real[]", "[0.1, 3.4028235e38, 1e-45]")
    assert [struct.pack(">f", value).hex() for value in found_array] == ["3dcccccd", "7f7fffff", "00000001"]


def test_bytes_and_uuids_in_arrays_are_stored(table: Table) -> None:
    uuid = "6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10"
    assert table.read_back("uuid[]", f'["{uuid}", null]') == [[UUID(uuid), None]]
    (found,) = table.read_back("bytea[]", '["AP8iXAo=", "", null]')
    assert [element if element is None else bytes(element) for element in found] == [b'\x00\xff"\\\n', b"", None]


def test_postgresql_takes_the_deepest_nesting_that_is_decoded(table: Table) -> None:
    depth = MAX_NESTING - 1
    (found,) = table.read_back("jsonb", "[" * depth + "]" * depth)
    assert json.dumps(found) == "[" * depth + "]" * depth


numbers = st.builds(
    lambda sign, integer, fraction, exponent: f"{sign}{integer}{fraction}{exponent}",
    st.sampled_from(["", "-"]),
    st.integers(0, 10**18),
    st.sampled_from(["", ".0", ".25", ".1234567890123456789", ".000"]),
    st.sampled_from(["", "e0", "E+10", "e-10", "e300", "e-300", "e16000", "e-16000"]),
)
storable_text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
shared_table = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)


@shared_table
@given(raws=st.lists(numbers, min_size=1, max_size=40))
def test_numbers_stay_exact_in_numeric_and_in_jsonb(table: Table, raws: list[str]) -> None:
    expected = [Decimal(raw) for raw in raws]
    assert table.read_back("numeric", *raws) == expected
    assert [Decimal(found) for found in table.read_back("jsonb", *raws)] == expected


@shared_table
@given(texts=st.lists(storable_text, min_size=1, max_size=40))
def test_text_stays_exact_alone_in_arrays_and_in_jsonb(table: Table, texts: list[str]) -> None:
    raws = [json.dumps(text) for text in texts]
    assert table.read_back("text", *raws) == texts
    assert table.read_back("jsonb", *raws) == texts
    assert table.read_back("text[]", f"[{', '.join(raws)}]") == [texts]


@shared_table
@given(
    moments=st.lists(
        st.datetimes(
            min_value=datetime(1, 1, 3),  # noqa: DTZ001  the zone is drawn beside it
            max_value=datetime(9999, 12, 29),  # noqa: DTZ001
            timezones=st.integers(-1_439, 1_439).map(lambda minutes: timezone(timedelta(minutes=minutes))),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_instants_stay_exact(table: Table, moments: list[datetime]) -> None:
    found = table.read_back("timestamptz", *(json.dumps(moment.isoformat()) for moment in moments))
    assert [moment.astimezone(UTC) for moment in found] == [moment.astimezone(UTC) for moment in moments]
