"""Columns from a key that is JSON, beside those from the value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.settings import ColumnSettings, Conversion, KeyFormat, KeySettings, Tombstones
from tests.decoding import decode, json_settings, reasons, record

ID = ColumnSettings("id", "bigint", ("id",), from_key=True)
NOTE = ColumnSettings("note", "text", ("note",))
REGION = ColumnSettings("region", "text", ("place", "region"), from_key=True)
REQUIRED = replace(ID, required=True)
SETTINGS = json_settings(ID, NOTE, REGION)
KEY, VALUE = b'{"id": 7, "place": {"region": "no"}}', b'{"id": 8, "note": "a"}'


def rows(settings: object, *records: dict[str, object]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = (
        decode(settings, *records).columns.select(["id", "note", "region"]).to_pylist()  # type: ignore[arg-type]
    )
    return found


def test_each_column_is_read_from_its_document_and_stands_where_the_pipeline_lists_it() -> None:
    assert rows(SETTINGS, record(VALUE, key=KEY)) == [{"id": 7, "note": "a", "region": "no"}]


def test_a_null_key_and_a_key_without_the_member_are_null() -> None:
    nothing = {"id": None, "note": "a", "region": None}
    assert rows(SETTINGS, record(VALUE, key=None), record(VALUE, key=b"{}")) == [nothing, nothing]


def test_a_tombstone_that_is_a_row_has_the_columns_of_its_key() -> None:
    assert rows(SETTINGS, record(None, key=KEY)) == [{"id": 7, "note": None, "region": "no"}]


def test_a_tombstone_that_is_counted_is_counted_whatever_its_key_is() -> None:
    decoded = decode(replace(SETTINGS, tombstones=Tombstones.COUNT), record(None, key=b"no JSON"))
    assert (decoded.tombstones, decoded.dead) == ([0], [])


@pytest.mark.parametrize("key", [None, b"{}", b'{"id": null}'])
def test_a_required_column_of_the_key_refuses_a_record_without_it(key: bytes | None) -> None:
    decoded = decode(json_settings(REQUIRED, NOTE), record(VALUE, key=key), record(None, key=KEY))
    assert reasons(decoded) == {0: DeadLetterReason.MISSING_REQUIRED}
    assert decoded.columns.column("id").to_pylist() == [7]


@pytest.mark.parametrize(
    ("key", "reason", "detail"),
    [
        (b"plain", DeadLetterReason.MALFORMED, "expected JSON, found plain"),
        (b"\xff", DeadLetterReason.NOT_UTF8, "expected UTF-8"),
        (b'{"id": "7"}', DeadLetterReason.WRONG_TYPE, 'column "id" from $.id of the key: expected bigint'),
        (b'{"place": 1}', DeadLetterReason.WRONG_TYPE, "$.place: expected an object"),
    ],
)
def test_a_key_that_does_not_fit_makes_its_record_a_dead_letter(
    key: bytes, reason: DeadLetterReason, detail: str
) -> None:
    [dead] = decode(SETTINGS, record(VALUE, key=key)).dead
    assert (dead.reason, detail in dead.detail) == (reason, True), dead.detail


def test_of_two_faults_the_one_of_the_value_is_named() -> None:
    [dead] = decode(SETTINGS, record(b'{"note": 1}', key=b"plain")).dead
    assert 'column "note" from $.note: expected a string' in dead.detail


def test_the_whole_key_may_be_a_column_and_be_stored_beside() -> None:
    whole = ColumnSettings("id", "bigint", (), from_key=True, conversion=Conversion.NUMBER_TEXT)
    settings = json_settings(NOTE, whole, key=KeySettings(KeyFormat.TEXT, "kafka_key"))
    [row] = decode(settings, record(VALUE, key=b'"42"')).columns.select(["note", "id", "kafka_key"]).to_pylist()
    assert row == {"note": "a", "id": 42, "kafka_key": '"42"'}
