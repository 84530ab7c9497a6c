from __future__ import annotations

import pytest

from kafka_ingest.errors import DeadLetterReason
from tests.decoding import read_value

WRONG_TYPE, OUT_OF_RANGE = DeadLetterReason.WRONG_TYPE, DeadLetterReason.OUT_OF_RANGE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-28", "2026-11-28"),
        ("2024-02-29", "2024-02-29"),
        ("2000-02-29", "2000-02-29"),
        ("0001-01-01", "0001-01-01"),
        ("9999-12-31", "9999-12-31"),
    ],
)
def test_a_date_is_kept(text: str, expected: str) -> None:
    assert read_value("date", f'"{text}"') == expected


@pytest.mark.parametrize(
    "text",
    ["2026-02-29", "1900-02-29", "2026-13-01", "2026-04-31", "2026-00-10", "2026-1-1", "28.11.2026", "today",
     "infinity", "20261128", "2026-W48-6", "+12026-01-01", "2026-11-28T00:00:00", " 2026-11-28", "2026-11-28 ", "",
     "\uff12\uff10\uff12\uff16-11-28"],
)  # fmt: skip
def test_what_names_no_date_is_of_the_wrong_type(text: str) -> None:
    assert read_value("date", f'"{text}"') == WRONG_TYPE


@pytest.mark.parametrize("raw", ["20261128", "true", "[]", '{"year": 2026}'])
def test_a_date_is_a_string(raw: str) -> None:
    assert read_value("date", raw) == WRONG_TYPE


def test_the_year_zero_is_out_of_range() -> None:
    assert read_value("date", '"0000-01-01"') == OUT_OF_RANGE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("01:02:03", "01:02:03"),
        ("23:59:59.999999", "23:59:59.999999"),
        ("01:02", "01:02:00"),
        ("01:02:03,5", "01:02:03.500000"),
        ("01:02:03.1234560000", "01:02:03.123456"),
    ],
)
def test_a_time_of_day_is_kept(text: str, expected: str) -> None:
    assert read_value("time", f'"{text}"') == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("24:00:00", OUT_OF_RANGE),
        ("24:00:00.000", OUT_OF_RANGE),
        ("23:59:60", OUT_OF_RANGE),
        ("01:02:03.1234567", OUT_OF_RANGE),
        ("24:00:01", WRONG_TYPE),
        ("25:00:00", WRONG_TYPE),
        ("01:60:00", WRONG_TYPE),
        ("01:02:61", WRONG_TYPE),
        ("01:02:03Z", WRONG_TYPE),
        ("01:02:03+01:00", WRONG_TYPE),
        ("1:02:03", WRONG_TYPE),
        ("01:02:03.", WRONG_TYPE),
        ("01:02:03 PM", WRONG_TYPE),
        ("allballs", WRONG_TYPE),
    ],
)
def test_a_time_that_would_change_is_refused(text: str, reason: DeadLetterReason) -> None:
    assert read_value("time", f'"{text}"') == reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-28T01:02:03", "2026-11-28T01:02:03"),
        ("2026-11-28 01:02:03.000001", "2026-11-28 01:02:03.000001"),
        ("2024-02-29T23:59:59.5", "2024-02-29 23:59:59.500000"),
        ("2026-11-28T01:02", "2026-11-28 01:02:00"),
        ("0001-01-01T00:00:00", "0001-01-01 00:00:00"),
        ("9999-12-31T23:59:59.999999", "9999-12-31 23:59:59.999999"),
    ],
)
def test_a_timestamp_is_kept(text: str, expected: str) -> None:
    assert read_value("timestamp", f'"{text}"') == expected


@pytest.mark.parametrize("text", ["2026-11-28T01:02:03Z", "2026-11-28T01:02:03+00:00", "2026-11-28"])
def test_a_timestamp_has_no_offset(text: str) -> None:
    assert read_value("timestamp", f'"{text}"') == WRONG_TYPE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-28T01:02:03Z", "2026-11-28T01:02:03Z"),
        ("2026-11-28T01:02:03.004+05:30", "2026-11-28T01:02:03.004+05:30"),
        ("2026-11-28t01:02:03z", "2026-11-28 01:02:03+00"),
        ("2026-11-28T01:02:03-0330", "2026-11-28 04:32:03+00"),
        ("2026-11-28T01:02:03+02", "2026-11-27 23:02:03+00"),
        ("2026-11-28T01:02:03-00:00", "2026-11-28T01:02:03-00:00"),
        # PostgreSQL refuses offsets of 16 hours and more; the instant is what counts.
        ("2026-11-28T01:02:03+23:59", "2026-11-27 01:03:03+00"),
        ("0001-01-01T00:00:00-01:00", "0001-01-01 01:00:00+00"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31 23:59:59.999999+00"),
        ("2026-11-28T01:02:03.1234560Z", "2026-11-28 01:02:03.123456+00"),
    ],
)
def test_a_timestamptz_keeps_its_instant(text: str, expected: str) -> None:
    assert read_value("timestamptz", f'"{text}"') == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-11-28T01:02:03", WRONG_TYPE),
        ("2026-11-28T01:02:03 Europe/Berlin", WRONG_TYPE),
        ("2026-11-28T01:02:03 Z", WRONG_TYPE),
        ("2026-11-28T01:02:03+24:00", WRONG_TYPE),
        ("2026-11-28T01:02:03+01:60", WRONG_TYPE),
        ("2026-02-30T01:02:03Z", WRONG_TYPE),
        ("1764291723", WRONG_TYPE),
        ("0000-12-31T23:00:00Z", OUT_OF_RANGE),
        ("0001-01-01T00:00:00+01:00", OUT_OF_RANGE),  # in UTC it is the year before 1
        ("9999-12-31T23:59:59-01:00", OUT_OF_RANGE),
        ("2026-11-28T24:00:00Z", OUT_OF_RANGE),
        ("2016-12-31T23:59:60Z", OUT_OF_RANGE),
        ("2026-11-28T01:02:03.1234567Z", OUT_OF_RANGE),
        ("2026-11-28T01:02:03.0000001Z", OUT_OF_RANGE),
    ],
)
def test_a_timestamptz_that_would_change_is_refused(text: str, reason: DeadLetterReason) -> None:
    assert read_value("timestamptz", f'"{text}"') == reason


def test_a_number_of_seconds_is_no_time() -> None:
    assert read_value("timestamptz", "1764291723") == WRONG_TYPE
