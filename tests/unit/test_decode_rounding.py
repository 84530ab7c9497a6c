"""Times that are finer than PostgreSQL stores, in columns that round them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.settings import ColumnSettings, Conversion, Rounding
from spark_jobs.decode.values import ColumnPlan, DecodeError
from tests.decoding import decode, document_of, json_settings, read_columns, reasons, record

OUT_OF_RANGE, WRONG_TYPE = DeadLetterReason.OUT_OF_RANGE, DeadLetterReason.WRONG_TYPE


def rounded(type_name: str, raw: str, conversion: Conversion | None = None) -> object:
    plan = ColumnPlan("a", parse_column_type(type_name), ("a",), conversion=conversion, is_rounded=True)
    [outcome] = read_columns([plan], document_of(raw))
    return outcome.reason if isinstance(outcome, DecodeError) else outcome[0]


@pytest.mark.parametrize(
    ("type_name", "raw", "expected"),
    [
        ("timestamptz", '"2026-01-31T13:45:00.123456499Z"', "2026-01-31T13:45:00.123456Z"),
        ("timestamptz", '"2026-01-31T13:45:00.1234565Z"', "2026-01-31 13:45:00.123457+00:00"),
        ("timestamptz", '"2026-01-31T13:45:00.123456Z"', "2026-01-31T13:45:00.123456Z"),
        ("timestamptz", '"2025-12-31T23:59:59.9999995+01:00"', "2026-01-01 00:00:00.000000+01:00"),
        ("timestamp", '"1969-12-31T23:59:59.9999999"', "1970-01-01 00:00:00.000000"),
        ("timestamp", '"0001-01-01T00:00:00.0000004"', "0001-01-01 00:00:00"),
        ("time", '"13:45:00.9999999"', "13:45:01.000000"),
        ("time", '"23:59:59.9999999"', OUT_OF_RANGE),
        ("timestamp", '"9999-12-31T23:59:59.9999999"', OUT_OF_RANGE),
        ("timestamptz", '"2026-02-30T13:45:00.1234567Z"', WRONG_TYPE),
        ("timestamptz", '"2026-01-31T13:45:00.1234567"', WRONG_TYPE),
        ("timestamptz", '"2026-01-31T13:45:60.1234567Z"', OUT_OF_RANGE),
    ],
)
def test_a_time_is_the_nearest_microsecond_halves_up(type_name: str, raw: str, expected: object) -> None:
    assert rounded(type_name, raw) == expected


@pytest.mark.parametrize(
    ("conversion", "raw", "expected"),
    [
        (Conversion.EPOCH_NANOS, "1499", "1970-01-01 00:00:00.000001"),
        (Conversion.EPOCH_NANOS, "1500", "1970-01-01 00:00:00.000002"),
        (Conversion.EPOCH_NANOS, "-1500", "1969-12-31 23:59:59.999999"),
        (Conversion.EPOCH_NANOS, "-1501", "1969-12-31 23:59:59.999998"),
        (Conversion.EPOCH_SECONDS, "0.0000005", "1970-01-01 00:00:00.000001"),
        (Conversion.EPOCH_SECONDS, "253402300799.9999995", OUT_OF_RANGE),
        (Conversion.EPOCH_MILLIS, "7", "1970-01-01 00:00:00.007000"),
    ],
)
def test_a_number_of_an_epoch_is_rounded_as_well(conversion: Conversion, raw: str, expected: object) -> None:
    assert rounded("timestamp", raw, conversion) == expected


def test_only_a_column_that_says_so_rounds() -> None:
    column = ColumnSettings("a", "timestamp without time zone", ("a",))
    fine = record(b'{"a": "2026-01-31T13:45:00.1234567"}')
    assert reasons(decode(json_settings(column), fine)) == {0: OUT_OF_RANGE}
    decoded = decode(json_settings(replace(column, rounding=Rounding.MICROSECONDS)), fine)
    assert decoded.columns.column("a").to_pylist() == ["2026-01-31 13:45:00.123457"]
