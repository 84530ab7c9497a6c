from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.copy_format import binary_format

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def fields(type_name: str, texts: list[str]) -> list[bytes]:
    """The fields of one column, read as PostgreSQL reads them."""
    copy_format = binary_format([type_name])
    assert copy_format is not None
    data = copy_format.encode(pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["v"])).read()
    found = []
    place = 19
    while (count := struct.unpack_from(">h", data, place)[0]) != -1:
        assert count == 1
        (length,) = struct.unpack_from(">i", data, place + 2)
        found.append(data[place + 6 : place + 6 + length])
        place += 6 + length
    assert place == len(data) - 2
    return found


def decimal_of(data: bytes) -> tuple[Decimal, int]:
    """The value and the scale of a numeric field."""
    count, weight, sign, scale = struct.unpack_from(">hhHH", data)
    digits = struct.unpack_from(f">{count}H", data, 8)
    assert all(digit < 10_000 for digit in digits)
    value = sum((Decimal(digit) * Decimal(10_000) ** (weight - k) for k, digit in enumerate(digits)), Decimal(0))
    return (-value if sign == 0x4000 else value), scale


@st.composite
def decimals(draw: st.DrawFn) -> tuple[int, int, list[Decimal]]:
    precision = draw(st.integers(1, 16))
    scale = draw(st.integers(0, precision))
    limit = 10**precision - 1
    values = draw(st.lists(st.integers(-limit, limit), min_size=1, max_size=5))
    return precision, scale, [Decimal(value).scaleb(-scale) for value in values]


@given(decimals())
def test_a_numeric_is_its_digits_sign_and_scale(drawn: tuple[int, int, list[Decimal]]) -> None:
    precision, scale, values = drawn
    found = fields(f"numeric({precision},{scale})", [format(value, "f") for value in values])
    assert [decimal_of(data) for data in found] == [(value, scale) for value in values]


def with_fraction(moment: datetime | time, digits: int) -> str:
    """ISO 8601 with that many digits of the second, 0 to 6, and the offset behind."""
    whole = moment.replace(microsecond=0)
    offset = whole.isoformat()[-6:] if moment.tzinfo else ""
    text = whole.isoformat().removesuffix(offset)
    return text + (f".{moment.microsecond:06d}"[: digits + 1] if digits else "") + offset


def cut(moment: datetime, digits: int) -> datetime:
    return moment.replace(microsecond=moment.microsecond - moment.microsecond % 10 ** (6 - digits))


zones = st.integers(-1_439, 1_439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=zones)  # noqa: DTZ001  zones are drawn


@given(st.lists(st.tuples(moments, st.integers(0, 6)), min_size=1, max_size=5))
def test_times_are_microseconds_since_2000(drawn: list[tuple[datetime, int]]) -> None:
    stored = [(cut(moment, digits), digits) for moment, digits in drawn]
    since = [(moment - EPOCH) // MICROSECOND for moment, _ in stored]
    local = [(moment.replace(tzinfo=UTC) - EPOCH) // MICROSECOND for moment, _ in stored]
    texts = [with_fraction(moment, digits) for moment, digits in stored]

    found = fields("timestamp with time zone", texts)
    assert [struct.unpack(">q", data)[0] for data in found] == since
    found = fields("timestamp without time zone", [text[:-6] for text in texts])
    assert [struct.unpack(">q", data)[0] for data in found] == local
    found = fields("time without time zone", [text[11:-6] for text in texts])
    assert [struct.unpack(">q", data)[0] for data in found] == [number % 86_400_000_000 for number in local]


@given(st.lists(st.dates(), min_size=1, max_size=5))
def test_dates_are_days_since_2000(drawn: list[date]) -> None:
    found = fields("date", [day.isoformat() for day in drawn])
    assert [struct.unpack(">i", data)[0] for data in found] == [(day - date(2000, 1, 1)).days for day in drawn]
