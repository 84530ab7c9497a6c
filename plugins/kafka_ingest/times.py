"""Times: what a record's time may be, and the clock."""

from __future__ import annotations

import time
from calendar import timegm
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

# Times that people write, as Kafka's record times: milliseconds since 1970 UTC.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_record_time_ms(time: datetime) -> int:
    """Return the milliseconds since 1970 UTC of a time with a zone; parts of a millisecond are rounded down."""
    # No difference of times: pendulum's, which Airflow uses, cannot be divided by a timedelta (3.3).
    return timegm(time.utctimetuple()) * 1_000 + time.microsecond // 1_000


def to_iso_text(time_ms: int) -> str:
    """Return milliseconds since 1970 UTC as ISO 8601 text, which :func:`parse_record_time` reads back."""
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat()


def parse_record_time(text: str, zone: str | None = None) -> int:
    """Read ISO 8601 text as milliseconds since 1970 UTC.

    Args:
        text: A time with its offset from UTC, at most milliseconds.
        zone: IANA time zone of a text without an offset; ``None`` requires the offset.

    Raises:
        ValueError: Its text says what was expected. A local time that a change of clocks leaves out or repeats is an
            error, too.
    """
    expected = _expected(zone)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(expected) from None
    if time.tzinfo is None and zone is not None:
        time = _local_time(time, zone)
    if time.tzinfo is None or time < _EPOCH or time.microsecond % 1_000:
        raise ValueError(expected)
    return to_record_time_ms(time)


def _expected(zone: str | None) -> str:
    offset = "its offset from UTC" if zone is None else f"its offset from UTC, or in the time zone {zone}"
    return f"a time with {offset}, at most milliseconds, from 1970 on, such as 2026-01-01T00:00:00Z"


def _local_time(time: datetime, zone: str) -> datetime:
    first, second = (time.replace(tzinfo=ZoneInfo(zone), fold=fold) for fold in (0, 1))
    if first.utcoffset() != second.utcoffset():
        raise ValueError(f"a time with its offset from UTC, for {zone} has that local time twice or not at all")
    return first


# The machine's clock.


class SystemClock:
    """The port ``Clock`` on the clock of this machine."""

    def now(self) -> datetime:
        """Return the time, UTC, with a time zone."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
