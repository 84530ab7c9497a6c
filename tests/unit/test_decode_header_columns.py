"""Columns from headers: bytes, characters or JSON, as the type says; the first or the last of one name."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.settings import BatchSettings, ColumnSettings, Conversion, Occurrence, Tombstones
from tests.decoding import decode, json_settings, reasons, record
from tests.values import VALUES, Value

NOTE = ColumnSettings("note", "text", ("note",))


def from_header(type_name: str, name: str = "a", **changes: Any) -> ColumnSettings:
    column, _, conversion = type_name.partition(" as ")
    changes = {"conversion": Conversion(conversion) if conversion else None, "occurrence": Occurrence.FIRST, **changes}
    return ColumnSettings("a", parse_column_type(column).sql, header=name, **changes)


def settings_of(*columns: ColumnSettings, **changes: Any) -> BatchSettings:
    return json_settings(NOTE, *columns, **changes)


def read(type_name: str, header: bytes | None, **changes: Any) -> Any:
    """Return what a column makes of the header ``a``: the decoded value, or the reason of the dead letter."""
    decoded = decode(settings_of(from_header(type_name, **changes)), record(), record(headers=[("a", header)]))
    found = decoded.columns.column("a").to_pylist()
    return decoded.dead[0].reason if decoded.dead else found[1]


TEXTS = {"text", "character varying", "uuid", "date", "time without time zone", "timestamp without time zone",
         "timestamp with time zone"}  # fmt: skip


def header_of(value: Value) -> bytes | None:
    """Write the value of the table as a header: the characters of a string where the column reads such."""
    of = parse_column_type(value.column)
    is_of_string = value.json.startswith('"') and not of.is_array
    conversion = value.type.partition(" as ")[2]
    if conversion in ("number_text", "json_text", "hex", "base64") or (not conversion and of.name in TEXTS):
        return _characters(value.json) if is_of_string else None
    if not conversion and of.name == "bytea":
        return None
    return value.json.encode()


def _characters(text: str) -> bytes | None:
    try:
        return str(json.loads(text)).encode()
    except (ValueError, UnicodeEncodeError):  # a lone surrogate has no bytes
        return None


@pytest.mark.parametrize("value", [value for value in VALUES if header_of(value) is not None], ids=str)
def test_a_header_is_read_as_strictly_as_the_same_value_in_json(value: Value) -> None:
    assert repr(read(value.type, header_of(value))) == repr(value.reason or value.cell)


@pytest.mark.parametrize("data", [b"", b"\x00\xff", b"AP8=", b"null"])
def test_bytea_takes_the_bytes_themselves(data: bytes) -> None:
    assert read("bytea", data) == data
    assert read("bytea as base64", base64.b64encode(data)) == data


@pytest.mark.parametrize(
    ("type_name", "header", "found"),
    [
        ("text", b"", ""),
        ("text", b"null", "null"),
        ("text", b'"a"', '"a"'),
        ("text", rb"\u00e9", r"\u00e9"),
        ("text", "é".encode(), "é"),
        ("text", b"\xff", DeadLetterReason.NOT_UTF8),
        ("text", b"a\x00", DeadLetterReason.UNSUPPORTED_TEXT),
        ("varchar(2)", b"abc", DeadLetterReason.TOO_LONG),
        ("uuid", b"\xff", DeadLetterReason.NOT_UTF8),
        ("timestamptz", b"2026-03-04T05:06:07Z", "2026-03-04T05:06:07Z"),
        ("timestamptz as epoch_millis", b"0", "1970-01-01 00:00:00.000000+00"),
        ("timestamptz as epoch_millis", b'"0"', DeadLetterReason.WRONG_TYPE),
        ("bigint as number_text", b"0042", 42),
        ("bigint", b"0042", DeadLetterReason.MALFORMED),
        ("bigint", b" 42 ", 42),
        ("bigint", b'"42"', DeadLetterReason.WRONG_TYPE),
        ("bigint", b"", DeadLetterReason.MALFORMED),
        ("bigint", b"null", None),
        ("numeric", b'"1.50"', "1.50"),
        ("boolean", b"true", True),
        ("jsonb", b'{"a": 1.0}', '{"a": 1.0}'),
        ("jsonb", b"null", None),
        ("jsonb as json_text", b"null", "null"),
        ("jsonb", b"a", DeadLetterReason.MALFORMED),
        ("jsonb", b"\xff", DeadLetterReason.NOT_UTF8),
        ("text[]", b'["a"]', '{"a"}'),
        ("bytea as hex", b"00ff", b"\x00\xff"),
    ],
)
def test_the_type_says_how_a_header_is_read(type_name: str, header: bytes, found: object) -> None:
    assert read(type_name, header) == found


HEADERS = [("b", b"0"), ("a", b"1"), ("a", b"2"), ("A", b"3"), ("a", None), ("c", b"4")]


@pytest.mark.parametrize(
    ("name", "occurrence", "found"),
    [
        ("a", Occurrence.FIRST, 1),
        ("a", Occurrence.LAST, None),  # the last one is there, and null
        ("A", Occurrence.LAST, 3),
        ("b", Occurrence.FIRST, 0),
        ("c", Occurrence.LAST, 4),
    ],
)
def test_of_repeated_headers_the_first_or_the_last_counts(name: str, occurrence: Occurrence, found: int | None) -> None:
    column = from_header("integer", name, occurrence=occurrence)
    records = [record(headers=[(name, b"8")]), record(headers=HEADERS), record(), record(headers=[(name, b"9")])]
    assert decode(settings_of(column), *records).columns.column("a").to_pylist() == [8, found, None, 9]


def test_header_columns_stand_where_the_pipeline_lists_them() -> None:
    settings = json_settings(
        from_header("text"),
        NOTE,
        replace(from_header("text", "b"), name="b"),
        ColumnSettings("id", "bigint", ("id",), from_key=True),
        replace(from_header("integer", occurrence=Occurrence.LAST), name="c"),
    )
    values = record(b'{"note": "n"}', key=b'{"id": 7}', headers=[("a", b"1"), ("b", b"2"), ("a", b"3")])
    [row] = decode(settings, values).columns.select(["a", "note", "b", "id", "c"]).to_pylist()
    assert row == {"a": "1", "note": "n", "b": "2", "id": 7, "c": 3}


@pytest.mark.parametrize(
    ("headers", "found"), [(None, "nothing there"), ([("b", b"1")], "nothing there"), ([("a", None)], "null")]
)
@pytest.mark.parametrize("type_name", ["text", "bytea", "integer"])
def test_a_required_header_that_is_absent_or_null_is_a_dead_letter(type_name: str, headers: Any, found: str) -> None:
    settings = settings_of(from_header(type_name, "a", required=True))
    [dead] = decode(settings, record(headers=[("a", b"1")]), record(headers=headers)).dead
    assert dead.reason is DeadLetterReason.MISSING_REQUIRED
    assert dead.detail == f'column "a" from header "a": expected a value, found {found}'
    [dead] = decode(settings_of(from_header(type_name)), record(headers=headers), not_null=["a"]).dead
    assert dead.reason is DeadLetterReason.NOT_NULL_VIOLATION


@pytest.mark.parametrize("header", [b"x", b"\xff", b'"x"'])
def test_a_detail_names_column_and_header(header: bytes) -> None:
    column = from_header("integer", "trace-id\u202e")
    [dead] = decode(settings_of(column), record(headers=[("trace-id\u202e", header)])).dead
    assert dead.detail.startswith(r'column "a" from header "trace-id\u202e": expected ')
    assert dead.detail.count("column") == 1


def test_unreadable_headers_are_dead_letters_where_a_column_reads_a_header() -> None:
    decoded = decode(settings_of(from_header("text")), record(), record(headers_readable=False))
    assert reasons(decoded) == {1: DeadLetterReason.UNREADABLE_HEADERS}
    assert decoded.dead[0].detail.startswith('column "a" from header "a": ')
    assert reasons(decode(settings_of(), record(headers_readable=False))) == {}


def test_a_tombstone_that_is_a_row_has_its_headers_and_one_that_is_counted_is_counted() -> None:
    settings = settings_of(from_header("integer"))
    row = decode(settings, record(None, headers=[("a", b"1")]))
    assert row.columns.select(["note", "a"]).to_pylist() == [{"note": None, "a": 1}]
    counted = decode(replace(settings, tombstones=Tombstones.COUNT), record(None, headers=[("a", b"x")]))
    assert (list(counted.tombstones), counted.dead) == ([0], [])


def test_of_faults_the_first_of_value_key_and_headers_is_named() -> None:
    settings = settings_of(
        ColumnSettings("id", "bigint", ("id",), from_key=True),
        from_header("integer"),
        replace(from_header("integer", "b"), name="b"),
    )
    headers = [("b", b"y"), ("a", b"x")]
    records = [(b"-", b"-"), (b"{}", b"-"), (b"{}", None)]
    dead = decode(settings, *(record(value, key=key, headers=headers) for value, key in records)).dead
    places = [letter.detail.partition("expected JSON, found ")[0] for letter in dead]
    assert places == ["", "the key: ", 'column "a" from header "a": ']
