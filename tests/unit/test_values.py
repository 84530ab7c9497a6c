"""Every value of the table is decoded to what the table says, the quick way and the exact way."""

from __future__ import annotations

from collections import Counter

import pytest

from kafka_ingest.column_types import SUPPORTED, parse_column_type
from spark_jobs.decode.numbers import MAX_SCALE, DecimalText
from spark_jobs.decode.values import DecodeError
from tests.decoding import document_of, plan_of, read_columns, read_value
from tests.values import TYPES, VALUES, Value, values_of


def expected(value: Value) -> str:
    """Write what a value becomes so that -0.0 differs from 0.0, and True from 1."""
    return repr(value.reason or value.cell)


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_value_is_kept_exactly_or_refused_as_the_table_says(value: Value) -> None:
    assert repr(read_value(value.type, value.json)) == expected(value)


@pytest.mark.parametrize("type_name", TYPES)
def test_each_value_of_a_batch_stays_itself_between_nulls(type_name: str) -> None:
    values = values_of(type_name, fit=True) + values_of(type_name, fit=False)
    documents = [document for value in values for document in (document_of(value.json), b"{}", b'{"a": null}')]
    outcomes = read_columns([plan_of(type_name)], *documents)
    found = [repr(outcome.reason if isinstance(outcome, DecodeError) else outcome[0]) for outcome in outcomes]
    assert found == [text for value in values for text in (expected(value), "None", "None")]


def test_a_fitting_and_a_refused_value_of_every_type_are_examples() -> None:
    """A new type cannot come without values."""
    for is_refused in (False, True):
        shown = {parse_column_type(v.column).name for v in VALUES if v.is_example and bool(v.reason) is is_refused}
        assert shown == {row.name for row in SUPPORTED}


def test_no_value_stands_in_the_table_twice() -> None:
    assert [entry for entry, count in Counter((value.type, value.json) for value in VALUES).items() if count > 1] == []


@pytest.mark.parametrize("value", values_of("numeric", fit=True), ids=str)
def test_a_decimal_number_written_out_is_what_postgresql_shows(value: Value) -> None:
    number = DecimalText.parse(value.json.strip('"'))
    assert number is not None
    # Only PostgreSQL drops the sign of zero.
    assert number.plain(max_scale=MAX_SCALE).removeprefix("" if number.digits else "-") == value.text


def detail_of(type_name: str, raw: str) -> str:
    (outcome,) = read_columns([plan_of(type_name)], document_of(raw))
    assert isinstance(outcome, DecodeError)
    return outcome.detail


def test_a_detail_names_column_path_expected_and_found() -> None:
    expected = 'column "a" from $.a: expected a number that numeric(5,2) holds exactly, found 12345.6'
    assert detail_of("numeric(5,2)", "12345.6") == expected


def test_a_detail_names_the_element() -> None:
    assert 'column "a" from $.a: element 2: expected smallint' in detail_of("smallint[]", "[1, 40000]")


def test_a_detail_never_quotes_more_than_a_short_excerpt() -> None:
    assert detail_of("integer", '"' + "x" * 10_000 + '"').count("x") <= 100


def test_a_detail_escapes_what_it_quotes() -> None:
    detail = detail_of("uuid", '"\u202e\u2028\x7f\\u0000"')
    assert detail.isprintable()
    assert detail.endswith(r'found the string "\u202e\u2028\x7f\u0000"')
