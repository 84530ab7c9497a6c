from __future__ import annotations

import base64
import json
import re
import struct
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.settings import ColumnSettings, KeyFormat, KeySettings, NewFields, Occurrence, Tombstones
from spark_jobs.decode.json import JsonColumns
from spark_jobs.decode.numbers import DecimalText
from spark_jobs.decode.paths import WatchedColumns
from spark_jobs.decode.values import ColumnPlan, DecodeError
from tests.decoding import decode, json_settings, read_columns, read_value, record
from tests.values import TYPES, VALUES

OUT_OF_RANGE, UNSUPPORTED_TEXT = DeadLetterReason.OUT_OF_RANGE, DeadLetterReason.UNSUPPORTED_TEXT

digits = st.text("0123456789", min_size=1, max_size=20)
exponents = st.sampled_from(
    ["", "e0", "E1", "e-1", "e+2", "e-5", "e15", "e-20", "e38", "e308", "e-330", "e16383", "e99999"]
)
number_texts = st.builds(
    lambda sign, integer, fraction, exponent: sign + (integer.lstrip("0") or "0") + fraction + exponent,
    st.sampled_from(["", "-"]),
    digits,
    st.one_of(st.just(""), digits.map(lambda text: "." + text)),
    exponents,
)
time_texts = st.one_of(
    st.datetimes(timezones=st.none() | st.just(UTC)).map(datetime.isoformat),
    st.dates().map(date.isoformat),
    st.times().map(time.isoformat),
    st.from_regex(
        r"[0-2][0-9]{3}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,8})?"
        r"(Z|[+-][01][0-9]:?[0-6]0)?",
        fullmatch=True,
    ),
)  # fmt: skip
text_values = st.one_of(
    st.text(),
    st.text('a\\"u0\x00 \ud800\udc00é😀', max_size=6),
    time_texts,
    number_texts,
    st.uuids().map(str),
    st.sampled_from(["AA==", "AAA=", "AAAA", "NaN", "null"]),
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), text_values),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(text_values, inner, max_size=3)),
    max_leaves=6,
)
#: The table's texts; those of thousands of digits would take all the time.
seeds = sorted({value.json for value in VALUES if len(value.json) < 200})
json_texts = st.one_of(
    st.sampled_from(seeds),
    number_texts,
    st.lists(number_texts, max_size=3).map(lambda numbers: f"[{', '.join(numbers)}]"),
    st.builds(json.dumps, json_values, ensure_ascii=st.just(True)),
    st.builds(json.dumps, text_values, ensure_ascii=st.just(True)),
    st.just("null"),
)


@pytest.mark.parametrize("type_name", TYPES)
@given(raw=json_texts)
def test_both_ways_of_reading_agree_on_every_value_of_every_type(type_name: str, raw: str) -> None:
    read_value(type_name, raw)  # the helper compares the quick with the exact way


def plan(name: str, type_name: str, *path: str, required: bool = False) -> ColumnPlan:
    return ColumnPlan(name, parse_column_type(type_name), path, required=required)


NESTED = (
    plan("id", "integer", "a", required=True),
    plan("same", "text", "a"),
    plan("parent", "jsonb", "b"),
    plan("child", "numeric(6,2)", "b", "c"),
    plan("other", "text", "d", "c"),
    plan("document", "jsonb"),
    replace(plan("moved", "text", "e"), other_paths=(("b", "d"), ("a",))),
    replace(plan("added", "numeric(6,2)", "f"), other_paths=(("g", "c"),)),
    replace(plan("given", "integer", "b", "d"), default="7"),
    replace(plan("shared", "jsonb", "d"), other_paths=(("a",),), default="[]"),
)
KEYS = st.sampled_from(["a", "b", "c", "d", "e", "f", "g"])
nested_documents = st.recursive(
    json_texts,
    lambda inner: st.lists(st.tuples(KEYS, inner), max_size=5).map(
        lambda pairs: "{" + ", ".join(f'"{key}": {value}' for key, value in pairs) + "}"
    ),
    max_leaves=12,
)


@given(documents=st.lists(nested_documents, max_size=6))
def test_both_ways_agree_on_nested_documents_with_repeated_keys(documents: list[str]) -> None:
    read_columns(NESTED, *(document.encode("utf-8", "surrogatepass") for document in documents))


#: An object on the way to a column, one that a column takes whole, and a key in each that no column reads.
WATCHED = (plan("a", "jsonb", "a"), plan("c", "jsonb", "b", "c"), plan("d", "jsonb", "a", "d"), plan("f", "jsonb", "f"))


def members_that_nobody_reads(value: Any) -> list[tuple[str, ...]]:
    """Say by hand what is new for these columns: of the root, and of the object ``b``."""
    if not isinstance(value, dict) or not isinstance(value.get("b", {}), dict | None):
        return []
    inner = value.get("b") or {}
    return [(key,) for key in value if key not in ("a", "b", "f")] + [("b", key) for key in inner if key != "c"]


@given(documents=st.lists(nested_documents, max_size=6))
def test_new_fields_are_the_members_of_objects_on_the_way_to_columns(documents: list[str]) -> None:
    values = pa.array([document.encode("utf-8", "surrogatepass") for document in documents], pa.large_binary())
    plain = JsonColumns(WATCHED).decode(values)
    sound = [row for row in range(len(documents)) if row not in plain.decode_errors]
    # A lone surrogate, which names no text, is read as U+0000.
    lone = re.compile("[\ud800-\udfff]")
    expected = {
        row: [(*way, lone.sub("\x00", key)) for *way, key in members_that_nobody_reads(json.loads(documents[row]))]
        for row in sound
    }
    warned = WatchedColumns(JsonColumns(WATCHED), WATCHED, NewFields.WARN)
    assert list(warned.decode(values).decode_errors) == list(plain.decode_errors)
    assert {field.path for field in warned.new_fields} == {path for paths in expected.values() for path in paths}
    refusing = WatchedColumns(JsonColumns(WATCHED), WATCHED, NewFields.DEAD_LETTER).decode(values)
    assert {row for row in refusing.decode_errors if row in sound} == {row for row, paths in expected.items() if paths}


damaged_documents = st.one_of(
    st.binary(max_size=30),
    st.builds(
        lambda text, place, insert, cut: text.encode()[:place] + insert + text.encode()[place + cut :],
        nested_documents,
        st.integers(0, 40),
        st.one_of(
            st.binary(max_size=2), st.sampled_from([b"\x00", b'"', b"\\", b"[", b"}", b",", b"\xff", rb"\ud800"])
        ),
        st.integers(0, 3),
    ),
)


def python_reads(data: bytes) -> bool:
    """Tell whether Python's own parser reads it, with what it allows beyond RFC 8259 taken away."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(data.decode("utf-8"), parse_constant=refuse, parse_int=Decimal, parse_float=Decimal)
    except ValueError:
        return False
    return True


@given(data=damaged_documents)
@example(b"\xef\xbb\xbf{}")
@example(b"")
@example(rb'{"a": "\ud800\u0041"}')
def test_just_what_is_no_json_is_malformed_or_not_utf8(data: bytes) -> None:
    (outcome,) = read_columns([plan("document", "jsonb")], data)
    refused = isinstance(outcome, DecodeError) and outcome.reason in (
        DeadLetterReason.MALFORMED,
        DeadLetterReason.NOT_UTF8,
    )
    assert refused != python_reads(data)
    read_columns(NESTED, data)


@given(st.integers(-(2**70), 2**70), st.sampled_from([("smallint", 16), ("integer", 32), ("bigint", 64)]))
@example(2**63 - 1, ("bigint", 64))
@example(-(2**15) - 1, ("smallint", 16))
def test_an_integer_is_itself_or_out_of_range(number: int, of: tuple[str, int]) -> None:
    name, bits = of
    expected = number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else OUT_OF_RANGE
    assert read_value(name, str(number)) == expected
    assert read_value(name, f"{number}.00") == expected
    assert read_value(name, f"{number}.0e0") == expected
    assert read_value(name, f"{number}.5") == OUT_OF_RANGE


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_is_kept_in_each_of_its_names(number: float) -> None:
    exact = format(Decimal(number), "f")
    for text in (repr(number), format(number, ".17g"), exact):
        assert repr(read_value("double precision", text)) == repr(number)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_every_real_is_kept_in_each_of_its_names(number: float) -> None:
    for text in (str(pa.scalar(number, pa.float32()).cast(pa.string())), format(number, ".9g"), repr(number)):
        assert repr(read_value("real", text)) == repr(number)


@given(number_texts, st.sampled_from(["real", "double precision"]))
def test_a_float_that_is_kept_is_the_nearest_one_to_the_number(text: str, name: str) -> None:
    found = read_value(name, text)
    if isinstance(found, DeadLetterReason):
        assert found == OUT_OF_RANGE
        return
    nearest = float(text)
    assert found == (nearest if name == "double precision" else struct.unpack("f", struct.pack("f", nearest))[0])
    assert (found == 0) == (Decimal(text) == 0)


@given(number_texts, st.integers(1, 12), st.integers(0, 12))
def test_a_decimal_is_kept_exactly_or_is_out_of_range(text: str, precision: int, scale: int) -> None:
    scale = min(scale, precision)
    value = Decimal(text)
    is_held = abs(value) < Decimal(10) ** (precision - scale) and (value.scaleb(scale) % 1 == 0 if value else True)
    found = read_value(f"numeric({precision},{scale})", text)
    if is_held:
        assert Decimal(found) == value
        assert "e" not in found.lower()
    else:
        assert found == OUT_OF_RANGE


@given(number_texts)
def test_a_decimal_text_is_read_and_written_without_a_change(text: str) -> None:
    number = DecimalText.parse(text)
    assert number is not None
    if number.fits(integer_digits=1_000, scale=1_000):
        plain, input_text = number.plain(max_scale=1_000), number.input_text(max_scale=1_000)
        assert Decimal(plain) == Decimal(input_text) == Decimal(text)
        # PostgreSQL shows as many digits after the point as either text has, so they must be the same number.
        assert max(-int(Decimal(plain).as_tuple().exponent), 0) == max(-int(Decimal(input_text).as_tuple().exponent), 0)
        assert len(input_text) <= len(text) + 20


def is_storable(text: str) -> bool:
    return not any(character == "\x00" or "\ud800" <= character <= "\udfff" for character in text)


@given(text_values, st.booleans())
def test_text_is_kept_or_told_as_unsupported(text: str, ascii_only: bool) -> None:
    # Escaped surrogates that stand side by side are one character, by JSON's own rule.
    meant = json.loads(json.dumps(text))
    raw = json.dumps(text, ensure_ascii=ascii_only or not is_storable(text))
    assert read_value("text", raw) == (meant if is_storable(meant) else UNSUPPORTED_TEXT)


@given(json_values)
def test_jsonb_keeps_the_document_or_tells_why_not(value: Any) -> None:
    raw = json.dumps(value)
    found = read_value("jsonb", raw)
    if value is None:
        assert found is None
    elif found == UNSUPPORTED_TEXT:
        assert not is_storable(json.dumps(json.loads(raw), ensure_ascii=False).replace("\\u0000", "\x00"))
    else:
        assert found == raw
        assert is_storable(json.dumps(json.loads(raw), ensure_ascii=False))


zones = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(timezones=zones), st.sampled_from(["T", " "]))
def test_an_instant_is_kept_whatever_its_offset(moment: datetime, separator: str) -> None:
    found = read_value("timestamptz", json.dumps(moment.isoformat(separator)))
    try:
        instant = moment.astimezone(UTC)
    except OverflowError:
        assert found == OUT_OF_RANGE
    else:
        assert datetime.fromisoformat(found) == instant


@given(st.datetimes(), st.sampled_from(["auto", "minutes", "milliseconds", "microseconds"]))
def test_a_timestamp_a_date_and_a_time_are_kept(moment: datetime, timespec: str) -> None:
    written = moment.isoformat(timespec=timespec)
    kept = datetime.fromisoformat(written)
    assert datetime.fromisoformat(read_value("timestamp", json.dumps(written))) == kept
    assert date.fromisoformat(read_value("date", json.dumps(moment.date().isoformat()))) == moment.date()
    assert time.fromisoformat(read_value("time", json.dumps(written[11:]))) == kept.time()


@given(st.binary(max_size=40))
def test_bytes_come_back_from_base64(data: bytes) -> None:
    assert read_value("bytea", json.dumps(base64.b64encode(data).decode())) == data


records = st.builds(
    record,
    value=st.one_of(st.none(), damaged_documents, nested_documents.map(str.encode)),
    key=st.none() | st.binary(max_size=4),
    timestamp_ms=st.none() | st.integers(-(2**63), 2**63 - 1),
    headers=st.none()
    | st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]) | st.text(st.characters(codec="utf-8")),
            st.none() | st.sampled_from([b"1", b"null"]) | st.binary(),
        ),
        max_size=3,
    ),
    headers_readable=st.booleans(),
)


@given(st.lists(records, max_size=5), st.sampled_from(Tombstones), st.sampled_from(["raw", "text", "json"]))
def test_every_record_becomes_just_one_thing(
    batch: list[dict[str, Any]], tombstones: Tombstones, key_format: KeyFormat
) -> None:
    settings = json_settings(
        ColumnSettings("a", "integer", ("a",), required=True),
        ColumnSettings("b", "text", ("b", "c"), default='"-"'),
        ColumnSettings("h", "text", header="a", occurrence=Occurrence.LAST),
        ColumnSettings("i", "integer", header="b", occurrence=Occurrence.FIRST, default="1"),
        key=KeySettings(key_format, "kafka_key"),
        headers_column="headers",
        tombstones=tombstones,
    )
    decoded = decode(settings, *batch)  # the helper checks it
    if tombstones is Tombstones.COUNT:
        assert list(decoded.tombstones) == [row for row, fields in enumerate(batch) if fields["value"] is None]
    for dead in decoded.dead:
        assert dead.detail.isprintable()
        assert len(dead.detail) < 1_000
