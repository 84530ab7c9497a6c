"""Times as people write them: with their offset, or in the pipeline's time zone, never guessed."""

from __future__ import annotations

import pytest

from kafka_ingest.times import parse_record_time, to_iso_text


@pytest.mark.parametrize(
    ("text", "zone", "time_ms"),
    [
        ("1970-01-01T00:00:00Z", None, 0),
        ("2026-01-01T00:00:00Z", None, 1_767_225_600_000),
        ("2026-01-01T01:00:00.250+01:00", None, 1_767_225_600_250),
        # A text with its offset does not need the zone.
        ("2026-01-01T00:00:00Z", "America/New_York", 1_767_225_600_000),
        # Winter: one hour before UTC; summer: two. 2026-07-01T00:00:00Z is 181 days after 2026-01-01T00:00:00Z.
        ("2026-01-01T01:00", "Europe/Berlin", 1_767_225_600_000),
        ("2026-07-01 02:00:00", "Europe/Berlin", 1_767_225_600_000 + 181 * 86_400_000),
        # A date alone is its midnight: 05:00 UTC in New York's winter.
        ("2026-01-01", "America/New_York", 1_767_225_600_000 + 5 * 3_600_000),
    ],
)
def test_a_time_is_milliseconds_since_1970(text: str, zone: str | None, time_ms: int) -> None:
    assert parse_record_time(text, zone) == time_ms


@pytest.mark.parametrize(
    "text", ["2026-01-01T00:00:00", "yesterday", "", "2026-01-01T00:00:00.0001Z", "1969-12-31T23:59:59Z"]
)
def test_what_is_no_time_says_what_one_looks_like(text: str) -> None:
    with pytest.raises(ValueError, match="a time with its offset from UTC, at most milliseconds, from 1970 on"):
        parse_record_time(text)


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("2026-03-29T02:30", "Europe/Berlin"),  # left out: 02:00 becomes 03:00
        ("2026-10-25T02:30", "Europe/Berlin"),  # twice: 03:00 becomes 02:00
        ("2026-03-08T02:30", "America/New_York"),
        ("2026-11-01T01:30", "America/New_York"),
    ],
)
def test_a_local_time_that_the_clocks_leave_out_or_repeat_is_refused(text: str, zone: str) -> None:
    with pytest.raises(ValueError, match="has that local time twice or not at all"):
        parse_record_time(text, zone)
    assert parse_record_time(f"{text}+00:00", zone) == parse_record_time(f"{text}+00:00")


@pytest.mark.parametrize("time_ms", [0, 1, 1_767_225_600_250, 4_102_444_799_999])
def test_a_time_is_written_so_that_it_is_read_back(time_ms: int) -> None:
    assert parse_record_time(to_iso_text(time_ms)) == time_ms
