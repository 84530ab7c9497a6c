"""``default`` of a column: for a missing value only, never for null, a wrong value, or a record without a document."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.settings import ColumnSettings, Conversion, Occurrence
from spark_jobs.decode.values import ColumnPlan, DecodeError
from tests.decoding import decode, json_settings, read_columns, reasons, record
from tests.values import VALUES, Value, values_of

ID = ColumnPlan("id", parse_column_type("bigint"), ("id",), default="7")


def read(plan: ColumnPlan, value: str) -> Any:
    """Read one record, the quick way and the exact way, which must agree; a dead letter gives its reason."""
    (outcome,) = read_columns([plan], value.encode())
    return outcome.reason if isinstance(outcome, DecodeError) else outcome[0]


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("{}", 7),
        ('{"other": 1}', 7),
        ('{"id": 8}', 8),
        ('{"id": null}', None),
        ('{"id": "8"}', DeadLetterReason.WRONG_TYPE),
        ('{"id": 1.5}', DeadLetterReason.OUT_OF_RANGE),
        ("null", DeadLetterReason.WRONG_TYPE),
        ("[]", DeadLetterReason.WRONG_TYPE),
    ],
)
def test_only_a_missing_value_becomes_the_default(value: str, stored: object) -> None:
    assert read(ID, value) == stored


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("{}", 7),
        ('{"a": {}}', 7),
        ('{"a": null}', 7),
        ('{"a": {"id": null}}', None),
        ('{"a": {"id": 8}}', 8),
        ('{"a": 1}', DeadLetterReason.WRONG_TYPE),
    ],
)
def test_a_value_is_missing_where_an_object_on_the_way_is_missing_or_null(value: str, stored: object) -> None:
    assert read(replace(ID, path=("a", "id")), value) == stored


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("{}", 7),
        ('{"number": 8}', 8),
        ('{"id": null, "number": 8}', None),
        ('{"id": 9, "number": 8}', 9),
        ('{"number": null}', None),
    ],
)
def test_of_several_paths_the_default_counts_where_none_is_there(value: str, stored: int | None) -> None:
    assert read(replace(ID, other_paths=(("number",),)), value) == stored


def test_a_default_is_in_the_usual_spelling_whatever_values_are_written_as() -> None:
    at = ColumnPlan(
        "at",
        parse_column_type("timestamptz"),
        ("at",),
        conversion=Conversion.EPOCH_MILLIS,
        default='"2026-01-02T03:04:05+01:00"',
    )
    assert read_columns([at], b"{}", b'{"at": 0}', b'{"at": null}') == [
        ["2026-01-02T03:04:05+01:00"],
        ["1970-01-01 00:00:00.000000+00"],
        [None],
    ]


FITTING = [value for value in VALUES if value.reason is None and " as " not in value.type and value.json != "null"]


@pytest.mark.parametrize("value", FITTING, ids=str)
def test_every_value_of_the_table_that_fits_may_be_a_default(value: Value) -> None:
    plan = ColumnPlan("a", parse_column_type(value.type), ("a",), default=value.json)
    present = values_of(value.type, fit=True)[0]
    outcomes = read_columns([plan], b"{}", f'{{"a": {present.json}}}'.encode(), b'{"a": null}', b"{}")
    assert repr(outcomes) == repr([[value.cell], [present.cell], [None], [value.cell]])


def test_a_column_that_others_look_into_or_share_has_a_default_too() -> None:
    plans = [
        ColumnPlan("whole", parse_column_type("jsonb"), ("a",), default='{"b": 0}'),
        ColumnPlan("b", parse_column_type("integer"), ("a", "b"), default="1"),
        ColumnPlan("b2", parse_column_type("integer"), ("a", "b"), default="2"),
        ColumnPlan("b3", parse_column_type("integer"), ("a", "b")),
    ]
    values = [b"{}", b'{"a": null}', b'{"a": {}}', b'{"a": {"b": null}}', b'{"a": {"b": 5}}']
    assert read_columns(plans, *values) == [
        ['{"b": 0}', 1, 2, None],
        [None, 1, 2, None],
        ["{}", 1, 2, None],
        ['{"b": null}', None, None, None],
        ['{"b": 5}', 5, 5, 5],
    ]


COLUMN = ColumnSettings("a", "text", ("a",), default='"none"')
KEY = ColumnSettings("k", "text", ("k",), from_key=True, default='"no key"')
HEADER = ColumnSettings("h", "text", header="h", occurrence=Occurrence.FIRST, default='"no header"')


def test_tombstones_null_keys_and_null_headers_stay_null() -> None:
    decoded = decode(
        json_settings(COLUMN, KEY, HEADER),
        record(b"{}", key=b"{}"),
        record(None, key=None, headers=[("h", None)]),
        record(b'{"a": null}', key=b'{"k": null}', headers=[("x", b"1")]),
        record(b'{"a": "v"}', key=b'{"k": "w"}', headers=[("h", b"x")]),
    )
    assert decoded.columns.select(["a", "k", "h"]).to_pylist() == [
        {"a": "none", "k": "no key", "h": "no header"},
        {"a": None, "k": None, "h": None},
        {"a": None, "k": None, "h": "no header"},
        {"a": "v", "k": "w", "h": "x"},
    ]


@pytest.mark.parametrize("type_name", ["text", "bytea", "integer"])
def test_a_default_satisfies_a_column_that_is_not_null_and_null_does_not(type_name: str) -> None:
    default = '"AA=="' if type_name == "bytea" else "1" if type_name == "integer" else '"x"'
    value = replace(COLUMN, type=type_name, default=default)
    header = replace(HEADER, type=type_name, default=default)
    records = [record(), record(b'{"a": null}'), record(headers=[("h", None)]), record(None)]
    decoded = decode(json_settings(value, header), *records, not_null=["a", "h"])
    assert reasons(decoded) == dict.fromkeys([1, 2, 3], DeadLetterReason.NOT_NULL_VIOLATION)
