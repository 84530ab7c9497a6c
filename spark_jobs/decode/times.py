"""Rules for date, time, timestamp and timestamptz: ISO 8601 strings in the extended format, exact to the microsecond.

Years 1 to 9999. The fraction may have more than six digits only where the rest are zeros. 24:00 and leap seconds are
out of range: PostgreSQL would move them to another instant. ``timestamptz`` needs ``Z`` or an offset, the others must
have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.decode.json_values import described, positions, string_value
from spark_jobs.decode.misfits import excerpt, out_of_range, wrong_type
from spark_jobs.decode.value_rules import QuickColumn

_DATE = "(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_TIME = "(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?"
_ZONE = "(?P<zone>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)"

# Text that PostgreSQL reads to the same value, whatever its settings: dates that exist (29 February is left to the
# exact way), years 1000 to 2999, offsets that PostgreSQL takes (it refuses 16 hours and more).
_PLAIN_DATE = (
    "[12][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_PLAIN_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_PLAIN_ZONE = "(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9])"


class TimeRule:
    """One of the four types.

    Args:
        expected: What a string must be, for a detail.
        plain: Pattern of the texts that are handed to PostgreSQL as they are.
        shape: Pattern of every text that is accepted.
        rewrite: Checks the parts of a text and writes it anew for PostgreSQL; ``ValueError`` for what does not exist,
            ``OverflowError`` for what the type cannot hold.
    """

    quick_type: Any = str | None

    def __init__(self, expected: str, plain: str, shape: str, rewrite: Callable[[re.Match[str]], str]) -> None:
        self._expected = expected
        self._plain = re.compile(plain)
        self._shape = re.compile(shape)
        self._rewrite = rewrite

    def exact(self, raw: bytes) -> str:
        """Gives PostgreSQL's input text for exactly the named value."""
        text = string_value(raw, self._expected)
        if self._plain.fullmatch(text):
            return text
        parts = self._shape.fullmatch(text)
        if not parts:
            raise wrong_type(self._expected, described(raw))
        try:
            return self._rewrite(parts)
        except OverflowError as error:
            raise out_of_range(self._expected, f"{excerpt(raw)} ({error})") from None
        except ValueError as error:
            raise wrong_type(self._expected, f"{excerpt(raw)} ({error})") from None

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Takes plain texts as they are."""
        texts = pa.array(values, pa.string())
        return QuickColumn(texts, positions(pc.invert(pc.match_substring_regex(texts, f"^{self._plain.pattern}$"))))


def _date(parts: re.Match[str]) -> date:
    if parts["year"] == "0000":
        raise OverflowError("years are 1 to 9999")
    return date(int(parts["year"]), int(parts["month"]), int(parts["day"]))


def _time(parts: re.Match[str]) -> time:
    hour, minute, second = (int(parts[name] or "0") for name in ("hour", "minute", "second"))
    fraction = parts["fraction"] or ""
    if (hour, minute, second) == (24, 0, 0) and not fraction.strip("0"):
        raise OverflowError("write 24:00 as 00:00 of the next day")
    if second == 60:
        raise OverflowError("leap seconds cannot be stored")
    if fraction[6:].strip("0"):
        raise OverflowError("more than six digits of a second")
    return time(hour, minute, second, int(fraction[:6].ljust(6, "0")))


def _zone(text: str) -> timezone:
    if text in "Zz":
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError("no such offset from UTC")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def _rewrite_date(parts: re.Match[str]) -> str:
    return _date(parts).isoformat()


def _rewrite_time(parts: re.Match[str]) -> str:
    return _time(parts).isoformat()


def _rewrite_timestamp(parts: re.Match[str]) -> str:
    return datetime.combine(_date(parts), _time(parts)).isoformat(sep=" ")


def _rewrite_timestamptz(parts: re.Match[str]) -> str:
    local = datetime.combine(_date(parts), _time(parts), _zone(parts["zone"]))
    try:
        instant = local.astimezone(UTC)
    except OverflowError:
        raise OverflowError("outside the years 1 to 9999 in UTC") from None
    return f"{instant.replace(tzinfo=None).isoformat(sep=' ')}+00"


_STAMP, _PLAIN_STAMP = f"{_DATE}[Tt ]{_TIME}", f"{_PLAIN_DATE}[T ]{_PLAIN_TIME}"

DATE_RULE = TimeRule("a date as YYYY-MM-DD", _PLAIN_DATE, _DATE, _rewrite_date)
TIME_RULE = TimeRule("a time of day as HH:MM:SS, without offset", _PLAIN_TIME, _TIME, _rewrite_time)
TIMESTAMP_RULE = TimeRule(
    "an ISO 8601 date and time, without offset from UTC", _PLAIN_STAMP, _STAMP, _rewrite_timestamp
)
TIMESTAMPTZ_RULE = TimeRule(
    "an ISO 8601 date and time with Z or an offset from UTC",
    _PLAIN_STAMP + _PLAIN_ZONE,
    _STAMP + _ZONE,
    _rewrite_timestamptz,
)
