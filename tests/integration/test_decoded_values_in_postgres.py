"""Decoded values, copied into a real table as a staging task copies them, are the values that the JSON named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import psycopg2
import psycopg2.extensions
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.copy_format import CSV, CopyFormat, binary_format
from spark_jobs.decode.documents import MAX_NESTING
from spark_jobs.decode.json import JsonColumns
from tests.decoding import document_of, plan_of
from tests.values import TYPES, values_of


class Table:
    """A table with one column ``a``, and a session whose settings must not matter."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._cursor.execute("SET datestyle = 'SQL, DMY'; SET timezone = 'Asia/Kolkata'")
        connection.commit()

    def read_back(self, type_name: str, *raws: str) -> list[Any]:
        """Decode JSON values, which must all fit, copy them in each format, and return PostgreSQL's texts for them.

        The texts, in the time zone UTC, also show every digit, the scale of a numeric and the sign of a zero.
        """
        plan = plan_of(type_name)
        part = JsonColumns([plan]).decode(pa.array(map(document_of, raws), pa.large_binary()))
        assert part.decode_errors == {}
        rows = pa.RecordBatch.from_arrays(list(part.arrays), ["a"])
        found = self._copied(plan.type.sql, rows, CSV)
        if binary := binary_format([plan.type.sql]):
            assert self._copied(plan.type.sql, rows, binary) == found
        return found

    def _copied(self, type_name: str, rows: pa.RecordBatch, copy_format: CopyFormat) -> list[Any]:
        try:
            self._cursor.execute(f"CREATE TEMPORARY TABLE t (n serial, a {type_name}) ON COMMIT DROP")
            self._cursor.copy_expert(f"COPY t (a) FROM STDIN WITH ({copy_format.options})", copy_format.encode(rows))
            self._cursor.execute("SET LOCAL datestyle = 'ISO'; SET LOCAL timezone = 'UTC'")
            self._cursor.execute("SELECT a::text FROM t ORDER BY n")
            return [text for (text,) in self._cursor.fetchall()]
        finally:
            self._connection.rollback()


@pytest.fixture
def table(database: dict[str, Any]) -> Iterator[Table]:
    with closing(psycopg2.connect(**database)) as connection:
        yield Table(connection)


@pytest.mark.parametrize("type_name", TYPES)
def test_a_value_that_fits_is_stored_as_the_table_says(table: Table, type_name: str) -> None:
    values = values_of(type_name, fit=True)
    assert table.read_back(type_name, *(value.json for value in values), "null") == [*(v.text for v in values), None]


def test_postgresql_takes_the_deepest_nesting_that_is_decoded(table: Table) -> None:
    depth = MAX_NESTING - 1
    assert table.read_back("jsonb", "[" * depth + "]" * depth) == ["[" * depth + "]" * depth]


numbers = st.builds(
    lambda sign, integer, fraction, exponent: f"{sign}{integer}{fraction}{exponent}",
    st.sampled_from(["", "-"]),
    st.integers(0, 10**18),
    st.sampled_from(["", ".0", ".25", ".1234567890123456789", ".000"]),
    st.sampled_from(["", "e0", "E+10", "e-10", "e300", "e-300", "e16000", "e-16000"]),
)
storable_text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
#: psycopg2's own reading of an array of texts.
STRING_ARRAY: Any = psycopg2.extensions.STRINGARRAY
shared_table = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)


@shared_table
@given(raws=st.lists(numbers, min_size=1, max_size=40))
def test_numbers_stay_exact_in_numeric_and_in_jsonb(table: Table, raws: list[str]) -> None:
    expected = [Decimal(raw) for raw in raws]
    assert [Decimal(found) for found in table.read_back("numeric", *raws)] == expected
    assert [Decimal(found) for found in table.read_back("jsonb", *raws)] == expected


@shared_table
@given(texts=st.lists(storable_text, min_size=1, max_size=40))
def test_text_stays_exact_alone_in_arrays_and_in_jsonb(table: Table, texts: list[str]) -> None:
    raws = [json.dumps(text) for text in texts]
    assert table.read_back("text", *raws) == texts
    assert [json.loads(found) for found in table.read_back("jsonb", *raws)] == texts
    (array,) = table.read_back("text[]", f"[{', '.join(raws)}]")
    assert STRING_ARRAY(array, None) == texts


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
    assert list(map(datetime.fromisoformat, found)) == [moment.astimezone(UTC) for moment in moments]
