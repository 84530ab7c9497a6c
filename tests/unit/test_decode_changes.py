"""A record of an upsert pipeline is a row, a delete of its key, a dead letter, or only counted: never two of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.kafka.registry import RegisteredSchema
from kafka_ingest.protocol.target import delete_settings, written_columns
from kafka_ingest.settings import (
    BatchSettings,
    ColumnSettings,
    Deletes,
    DeleteWhen,
    KeyFormat,
    KeySettings,
    MetadataColumns,
    NewFields,
    OrderBy,
    UpsertSettings,
    ValueFormat,
    ValueSettings,
)
from spark_jobs.decode import record as record_module
from spark_jobs.decode.changes import ChangeDecoder, decoder_of
from spark_jobs.decode.record import RecordDecoder
from spark_jobs.decode.values import DecodedBatch
from tests.decoding import BATCH_ID, batch_of, json_settings, reasons, record, target_of
from tests.unit.test_decode_framed import FakeRegistry, number_frame, schemas_in

ID = ColumnSettings("id", "bigint", ("id",), required=True, from_key=True)
ID_OF_VALUE = replace(ID, from_key=False)
NOTE = ColumnSettings("note", "bigint", ("note",))
BY_OFFSET = UpsertSettings(("id",), OrderBy.OFFSET, Deletes.REMOVE)
KEY = b'{"id": 7}'
GONE = DeleteWhen(("gone",), "true")


def settings_of(*columns: ColumnSettings, upsert: UpsertSettings = BY_OFFSET, **changes: Any) -> BatchSettings:
    return json_settings(*(columns or (ID, NOTE)), upsert=upsert, **changes)


def decode(settings: BatchSettings, *records: Mapping[str, Any]) -> DecodedBatch:
    """Decode records, and check that each is in exactly one part, under the names that are written."""
    decoder = ChangeDecoder(settings, target_of(settings), batch_id=BATCH_ID)
    return checked(decoder.decode(batch_of(*records), generation=2), settings, len(records))


def checked(decoded: DecodedBatch, settings: BatchSettings, records: int) -> DecodedBatch:
    rows = [*decoded.row_index, *decoded.delete_index, *(row.row_index for row in decoded.dead), *decoded.tombstones]
    assert sorted(rows) == list(range(records))
    for part in (decoded.row_index, decoded.delete_index, [row.row_index for row in decoded.dead], decoded.tombstones):
        assert list(part) == sorted(part)
    assert decoded.columns.schema.names == [column.name for column in written_columns(settings)]
    assert decoded.columns.num_rows == len(decoded.row_index)
    if decoded.deletes is not None:
        assert decoded.deletes.schema.names == [c.name for c in written_columns(delete_settings(settings))]
        assert decoded.deletes.num_rows == len(decoded.delete_index)
    return decoded


def parts(decoded: DecodedBatch) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return the input rows of rows, deletes, dead letters and counted records."""
    dead = [row.row_index for row in decoded.dead]
    return list(decoded.row_index), list(decoded.delete_index), dead, list(decoded.tombstones)


def put(value: object = None, key: bytes | None = KEY, **fields: Any) -> dict[str, Any]:
    return record(json.dumps({"note": 1} if value is None else value).encode(), key=key, **fields)


def tombstone(key: bytes | None = KEY, **fields: Any) -> dict[str, Any]:
    return record(None, key=key, **fields)


# ----------
# Puts, tombstones, and records without key and value.


def test_a_record_with_a_value_is_a_row_and_a_tombstone_with_a_key_a_delete() -> None:
    decoded = decode(settings_of(), put(), tombstone(), put({"note": 2}, b'{"id": 8}'))
    assert parts(decoded) == ([0, 2], [1], [], [])
    assert decoded.columns.select(["id", "note", "kafka_offset"]).to_pylist() == [
        {"id": 7, "note": 1, "kafka_offset": 0},
        {"id": 8, "note": 2, "kafka_offset": 2},
    ]
    assert decoded.deletes is not None
    identity = ["id", "kafka_topic", "kafka_generation", "kafka_partition", "kafka_offset"]
    assert [list(row.values()) for row in decoded.deletes.select(identity).to_pylist()] == [[7, "orders", 2, 3, 1]]


def test_batches_of_one_kind_have_that_part_alone() -> None:
    assert parts(decode(settings_of(), put(), put())) == ([0, 1], [], [], [])
    assert parts(decode(settings_of(), tombstone(), tombstone())) == ([], [0, 1], [], [])
    assert parts(decode(settings_of())) == ([], [], [], [])
    assert decode(settings_of(), put()).deletes is None


def test_a_record_with_neither_key_nor_value_is_only_counted_whatever_deletes_do() -> None:
    for deletes in Deletes:
        upsert = replace(BY_OFFSET, deletes=deletes, deleted_at="gone_at" if deletes is Deletes.MARK else None)
        decoded = decode(settings_of(upsert=upsert), put(), tombstone(None), put())
        assert parts(decoded) == ([0, 2], [], [], [1])


def test_a_value_without_a_key_is_a_dead_letter() -> None:
    decoded = decode(settings_of(), put(key=None), put())
    assert reasons(decoded) == {0: DeadLetterReason.MISSING_REQUIRED}


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (b'{"id": null}', DeadLetterReason.MISSING_REQUIRED),
        (b"{}", DeadLetterReason.MISSING_REQUIRED),
        (b'{"id": "7"}', DeadLetterReason.WRONG_TYPE),
        (b'{"id": 9223372036854775808}', DeadLetterReason.OUT_OF_RANGE),
        (b"{broken", DeadLetterReason.MALFORMED),
        (b"", DeadLetterReason.MALFORMED),
    ],
)
def test_a_key_that_fills_no_key_column_makes_puts_and_tombstones_dead_letters(
    key: bytes, reason: DeadLetterReason
) -> None:
    decoded = decode(settings_of(), put(key=key), tombstone(key))
    assert reasons(decoded) == {0: reason, 1: reason}


def test_a_tombstone_is_a_dead_letter_where_the_key_is_in_the_value() -> None:
    settings = settings_of(ID_OF_VALUE, NOTE, upsert=replace(BY_OFFSET, delete_when=GONE))
    decoded = decode(settings, tombstone(), put({"id": 7, "gone": True}), put({"id": 7}))
    assert parts(decoded) == ([2], [1], [0], [])
    assert reasons(decoded) == {0: DeadLetterReason.MISSING_REQUIRED}


def test_a_tombstone_is_a_dead_letter_where_one_of_two_key_columns_is_in_the_value() -> None:
    shop = ColumnSettings("shop", "text", ("shop",), required=True)
    upsert = replace(BY_OFFSET, key=("shop", "id"), delete_when=GONE)
    decoded = decode(settings_of(ID, shop, upsert=upsert), tombstone(), put({"shop": "a", "gone": True}))
    assert parts(decoded) == ([], [1], [0], [])


# ----------
# delete_when.


@pytest.mark.parametrize(
    ("equals", "path", "value", "is_delete"),
    [
        ('"d"', ("op",), {"op": "d"}, True),
        ('"d"', ("op",), {"op": "D"}, False),
        ('"d"', ("op",), {"op": "d "}, False),
        ('"d"', ("op",), {"op": ["d"]}, False),
        ("1", ("op",), {"op": 1}, True),
        ("1", ("op",), {"op": 1.0}, True),
        ("1.0", ("op",), {"op": 1}, True),
        ("100", ("op",), {"op": 1e2}, True),
        ("1", ("op",), {"op": "1"}, False),
        ("1", ("op",), {"op": True}, False),
        ("true", ("op",), {"op": 1}, False),
        ("true", ("op",), {"op": True}, True),
        ("true", ("op",), {"op": "true"}, False),
        ('"true"', ("op",), {"op": "true"}, True),
        ('"true"', ("op",), {"op": True}, False),
        ("false", ("op",), {"op": False}, True),
        ("false", ("op",), {"op": 0}, False),
        ("false", ("op",), {"op": None}, False),
        ("false", ("op",), {}, False),
        ('"null"', ("op",), {"op": None}, False),
        ('""', ("op",), {"op": ""}, True),
        ('""', ("op",), {}, False),
        ('"d"', ("meta", "op"), {"meta": {"op": "d"}}, True),
        ('"d"', ("meta", "op"), {"meta": None}, False),
        ('"d"', ("meta", "op"), {"op": "d"}, False),
        ('"d"', ("op",), {"op": {"op": "d"}}, False),
        ('"ü"', ("op",), {"op": "ü"}, True),
        ('"ü"', ("op",), {"op": "u\u0308"}, False),
        ("12345678901234567890123", ("op",), {"op": 12345678901234567890123}, True),
        ("12345678901234567890123", ("op",), {"op": 12345678901234567890124}, False),
    ],
)
def test_a_record_is_a_delete_where_it_has_the_wanted_value(
    equals: str, path: tuple[str, ...], value: dict[str, object], is_delete: bool
) -> None:
    settings = settings_of(upsert=replace(BY_OFFSET, delete_when=DeleteWhen(path, equals)))
    assert parts(decode(settings, put({}), put(value), put({}))) == (
        ([0, 2], [1], [], []) if is_delete else ([0, 1, 2], [], [], [])
    )


@pytest.mark.parametrize("text", [rb'"\u0064"', rb'"d"', b' "d" '])
def test_a_text_is_wanted_by_its_characters_however_json_spells_them(text: bytes) -> None:
    settings = settings_of(upsert=replace(BY_OFFSET, delete_when=DeleteWhen(("op",), r'"d"')))
    assert parts(decode(settings, record(b'{"op":' + text + b"}", key=KEY))) == ([], [0], [], [])
    settings = settings_of(upsert=replace(BY_OFFSET, delete_when=DeleteWhen(("op",), r'"\u0064"')))
    assert parts(decode(settings, record(b'{"op":' + text + b"}", key=KEY))) == ([], [0], [], [])


def test_the_whole_value_may_be_what_delete_when_looks_at() -> None:
    settings = settings_of(ID, upsert=replace(BY_OFFSET, delete_when=DeleteWhen((), '"gone"')))
    assert parts(decode(settings, record(b'"gone"', key=KEY))) == ([], [0], [], [])


AMOUNT = ColumnSettings("amount", "numeric(4,1)", ("amount",), required=True)


@pytest.mark.parametrize("amount", [{}, {"amount": None}, {"amount": "much"}, {"amount": [1]}, {"amount": 1e9}])
def test_a_delete_is_one_whatever_its_other_columns_hold(amount: dict[str, object]) -> None:
    settings = settings_of(ID, AMOUNT, upsert=replace(BY_OFFSET, delete_when=GONE))
    assert parts(decode(settings, put({"gone": True, **amount}), put(amount))) == ([], [0], [1], [])


def test_a_delete_whose_key_does_not_fit_is_a_dead_letter_whatever_else_does_not() -> None:
    settings = settings_of(ID_OF_VALUE, AMOUNT, upsert=replace(BY_OFFSET, delete_when=GONE))
    decoded = decode(settings, put({"gone": True, "id": "x"}), put({"gone": True, "amount": 1.0}), put({"gone": True}))
    assert reasons(decoded) == {
        0: DeadLetterReason.WRONG_TYPE,
        1: DeadLetterReason.MISSING_REQUIRED,
        2: DeadLetterReason.MISSING_REQUIRED,
    }


def test_a_value_that_is_no_json_is_a_dead_letter_and_no_delete() -> None:
    settings = settings_of(upsert=replace(BY_OFFSET, delete_when=GONE))
    decoded = decode(settings, record(b'{"gone": true', key=KEY), record(b"", key=KEY))
    assert reasons(decoded) == {0: DeadLetterReason.MALFORMED, 1: DeadLetterReason.MALFORMED}


def test_a_path_of_delete_when_through_what_is_no_object_is_a_dead_letter_as_it_is_for_columns() -> None:
    settings = settings_of(upsert=replace(BY_OFFSET, delete_when=DeleteWhen(("meta", "op"), '"d"')))
    decoded = decode(settings, put({"meta": "d"}), put({"meta": {"op": "d"}}))
    assert parts(decoded) == ([], [1], [0], [])
    assert reasons(decoded) == {0: DeadLetterReason.WRONG_TYPE}


def test_a_value_that_jsonb_cannot_hold_where_delete_when_looks_is_a_dead_letter_in_words_of_the_file() -> None:
    settings = settings_of(upsert=replace(BY_OFFSET, delete_when=DeleteWhen(("op",), '"d"')))
    decoded = decode(settings, record(rb'{"op": "\u0000"}', key=KEY))
    assert reasons(decoded) == {0: DeadLetterReason.UNSUPPORTED_TEXT}
    assert decoded.dead[0].detail.startswith("delete_when from $.op: ")


def test_of_equal_members_of_a_value_the_last_one_tells_as_for_columns() -> None:
    settings = settings_of(upsert=replace(BY_OFFSET, delete_when=GONE))
    decoded = decode(
        settings,
        record(b'{"gone": true, "gone": false}', key=KEY),
        record(b'{"gone": false, "gone": true}', key=KEY),
    )
    assert parts(decoded) == ([0], [1], [], [])


# ----------
# What deletes do.


@pytest.mark.parametrize(
    ("deletes", "expected"),
    [
        (Deletes.REMOVE, ([0], [1, 2], [], [3])),
        (Deletes.MARK, ([0], [1, 2], [], [3])),
        (Deletes.IGNORE, ([0], [], [], [1, 2, 3])),
        (Deletes.DEAD_LETTER, ([0], [], [1, 2], [3])),
    ],
)
def test_what_becomes_of_deletes_is_what_the_file_says(deletes: Deletes, expected: tuple[list[int], ...]) -> None:
    marked = "gone_at" if deletes is Deletes.MARK else None
    upsert = replace(BY_OFFSET, deletes=deletes, deleted_at=marked, delete_when=GONE)
    decoded = decode(settings_of(upsert=upsert), put(), tombstone(), put({"gone": True}), tombstone(None))
    assert parts(decoded) == expected


def test_deletes_that_are_dead_letters_say_which_kind_they_are() -> None:
    upsert = replace(BY_OFFSET, deletes=Deletes.DEAD_LETTER, delete_when=GONE)
    decoded = decode(settings_of(upsert=upsert), tombstone(), put({"gone": True}))
    assert reasons(decoded) == {0: DeadLetterReason.TOMBSTONE, 1: DeadLetterReason.TOMBSTONE}
    assert ["a tombstone" in row.detail for row in decoded.dead] == [True, False]
    assert ["delete_when" in row.detail for row in decoded.dead] == [False, True]


def test_under_dead_letter_a_record_is_one_dead_letter_also_where_its_other_columns_do_not_fit() -> None:
    upsert = replace(BY_OFFSET, deletes=Deletes.DEAD_LETTER, delete_when=GONE)
    decoded = decode(settings_of(ID, AMOUNT, upsert=upsert), put({"gone": True}), put({"amount": "x"}))
    assert reasons(decoded) == {0: DeadLetterReason.TOMBSTONE, 1: DeadLetterReason.WRONG_TYPE}


def test_a_put_has_no_time_of_deletion_and_a_delete_has_its_record_time() -> None:
    upsert = replace(BY_OFFSET, deletes=Deletes.MARK, deleted_at="gone_at")
    decoded = decode(settings_of(upsert=upsert), put(timestamp_ms=5), tombstone(timestamp_ms=6))
    assert decoded.columns.column("gone_at").to_pylist() == [None]
    assert decoded.deletes is not None
    assert decoded.deletes.column("kafka_timestamp").cast(pa.int64()).to_pylist() == [6]
    assert "gone_at" not in decoded.deletes.schema.names


# ----------
# The order of records.


AT = ColumnSettings("at", "real", ("at",), required=True)
BY_COLUMN = replace(BY_OFFSET, order=OrderBy.COLUMN, order_column="at", delete_when=GONE)


def test_under_the_order_of_a_column_a_tombstone_has_no_version_and_is_a_dead_letter() -> None:
    decoded = decode(settings_of(ID, AT, upsert=BY_COLUMN), tombstone(), put({"at": 1, "gone": True}), put({"at": 2}))
    assert parts(decoded) == ([2], [1], [0], [])
    assert decoded.deletes is not None
    assert decoded.deletes.column("at").to_pylist() == [1.0]


def test_puts_and_deletes_without_a_value_in_the_order_are_dead_letters() -> None:
    records = [put({"at": at, "gone": gone}) for at in (None, "x") for gone in (False, True)]
    decoded = decode(settings_of(ID, AT, upsert=BY_COLUMN), *records, put({}), put({"gone": True}))
    missing, wrong = DeadLetterReason.MISSING_REQUIRED, DeadLetterReason.WRONG_TYPE
    assert reasons(decoded) == {0: missing, 1: missing, 2: wrong, 3: wrong, 4: missing, 5: missing}


def avro_decoder(monkeypatch: pytest.MonkeyPatch, settings: BatchSettings) -> ChangeDecoder:
    """A decoder of records whose schema has ``at``, a double, and ``gone``, a boolean."""
    fields = '[{"name": "at", "type": "double"}, {"name": "gone", "type": "boolean"}]'
    schema = RegisteredSchema("AVRO", f'{{"type": "record", "name": "R", "fields": {fields}}}', {})
    monkeypatch.setattr(record_module, "schemas_of", lambda *_: schemas_in(FakeRegistry({1: schema}), kind="AVRO"))
    return ChangeDecoder(settings, target_of(settings), batch_id=BATCH_ID)


NAN, INFINITY, MINUS_INFINITY, ONE = (
    bytes.fromhex(digits)[::-1]
    for digits in ("7ff8000000000000", "7ff0000000000000", "fff0000000000000", "3ff0" + "0" * 12)
)


@pytest.mark.parametrize("type_name", ["real", "double precision"])
def test_nan_and_infinity_order_nothing_neither_puts_nor_deletes(
    monkeypatch: pytest.MonkeyPatch, type_name: str
) -> None:
    value = ValueSettings(ValueFormat.AVRO, (ID, replace(AT, type=type_name)))
    settings = replace(settings_of(upsert=BY_COLUMN), value=value, key=KeySettings(KeyFormat.JSON, None))
    decoder = avro_decoder(monkeypatch, settings)
    numbers = [ONE, NAN, INFINITY, MINUS_INFINITY]
    records = [record(number_frame(1) + n + gone, key=KEY) for n in numbers for gone in (b"\x00", b"\x01")]
    decoded = checked(decoder.decode(batch_of(*records), generation=0), settings, len(records))
    assert parts(decoded) == ([0], [1], [2, 3, 4, 5, 6, 7], [])
    assert set(reasons(decoded).values()) == {DeadLetterReason.OUT_OF_RANGE}
    assert 'column "at", which orders the records' in decoded.dead[0].detail


def test_nan_in_another_column_than_the_order_is_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    value = ValueSettings(ValueFormat.AVRO, (ID, replace(AT, required=False)))
    decoder = avro_decoder(monkeypatch, replace(settings_of(), value=value, key=KeySettings(KeyFormat.JSON, None)))
    decoded = decoder.decode(batch_of(record(number_frame(1) + NAN + b"\x00", key=KEY)), generation=0)
    assert parts(decoded) == ([0], [], [], [])


def test_a_record_without_a_time_is_a_dead_letter_where_times_order_and_only_there() -> None:
    records = [put(timestamp_ms=None), tombstone(timestamp_ms=None), put(timestamp_ms=1), tombstone(timestamp_ms=1)]
    assert parts(decode(settings_of(), *records)) == ([0, 2], [1, 3], [], [])
    by_time = settings_of(upsert=replace(BY_OFFSET, order=OrderBy.RECORD_TIME))
    assert parts(decode(by_time, *records)) == ([2], [3], [0, 1], [])


# ----------
# New fields, the key's own column, headers, metadata.


def test_fields_of_a_delete_are_no_new_fields_and_those_of_a_put_are() -> None:
    value = ValueSettings(ValueFormat.JSON_COLUMNS, (ID, NOTE), new_fields=NewFields.DEAD_LETTER)
    settings = replace(settings_of(upsert=replace(BY_OFFSET, delete_when=GONE)), value=value)
    records = (put({"gone": True, "more": 1}), put({"more": 1}), put({"gone": False, "note": 1}), tombstone())
    decoded = decode(settings, *records)
    assert parts(decoded) == ([2], [0, 3], [1], [])
    assert reasons(decoded) == {1: DeadLetterReason.WRONG_TYPE}


def test_new_fields_of_puts_are_told_and_where_delete_when_looks_there_is_none() -> None:
    value = ValueSettings(ValueFormat.JSON_COLUMNS, (ID, NOTE), new_fields=NewFields.WARN)
    settings = replace(settings_of(upsert=replace(BY_OFFSET, delete_when=GONE)), value=value)
    decoder = ChangeDecoder(settings, target_of(settings), batch_id=BATCH_ID)
    decoder.decode(batch_of(put({"note": 1, "gone": False, "more": 1})), generation=0)
    assert [field.path for field in decoder.new_fields] == [("more",)]


@pytest.mark.parametrize(
    ("key_format", "keys", "values"),
    [
        (KeyFormat.TEXT, ["a", "", "A "], ["a", "", "A "]),
        (KeyFormat.RAW, ["\x00", "", "é"], [b"\x00", b"", "é".encode()]),
    ],
)
def test_the_record_key_itself_may_be_the_key_the_empty_one_too(
    key_format: KeyFormat, keys: list[str], values: list[object]
) -> None:
    upsert = replace(BY_OFFSET, key=("k",))
    settings = settings_of(NOTE, upsert=upsert, key=KeySettings(key_format, "k", required=True))
    records = [kind(key=key.encode()) for key in keys for kind in (put, tombstone)]
    decoded = decode(settings, *records)
    assert parts(decoded) == ([0, 2, 4], [1, 3, 5], [], [])
    assert decoded.deletes is not None
    assert decoded.columns.column("k").to_pylist() == decoded.deletes.column("k").to_pylist() == values


def test_a_text_key_that_no_column_can_hold_is_a_dead_letter_of_puts_and_deletes() -> None:
    upsert = replace(BY_OFFSET, key=("k",))
    settings = settings_of(NOTE, upsert=upsert, key=KeySettings(KeyFormat.TEXT, "k", required=True))
    decoded = decode(settings, put(key=b"\xff"), tombstone(b"\xff"), put(key=b"\x00"), tombstone(b"\x00"))
    assert parts(decoded) == ([], [], [0, 1, 2, 3], [])


def test_a_key_column_that_is_no_part_of_the_key_is_not_read_of_deletes() -> None:
    settings = settings_of(
        ID_OF_VALUE, upsert=replace(BY_OFFSET, delete_when=GONE), key=KeySettings(KeyFormat.TEXT, "k")
    )
    decoded = decode(settings, put({"id": 1, "gone": True}, b"\xff"), put({"id": 1}, b"\xff"))
    assert parts(decoded) == ([], [0], [1], [])


def test_headers_are_of_puts_and_a_delete_needs_none() -> None:
    tenant = ColumnSettings("tenant", "text", header="tenant", required=True)
    settings = settings_of(ID, tenant, headers_column="headers")
    headers = [{"name": "tenant", "value": b"x"}]
    decoded = decode(settings, put(headers=headers), put(), tombstone(headers=headers), tombstone())
    assert parts(decoded) == ([0], [2, 3], [1], [])
    assert decoded.columns.column("tenant").to_pylist() == ["x"]
    assert decoded.columns.column("headers").null_count == 0


def test_a_header_may_be_a_part_of_the_key() -> None:
    tenant = ColumnSettings("tenant", "text", header="tenant", required=True)
    settings = settings_of(ID, tenant, upsert=replace(BY_OFFSET, key=("tenant", "id")))
    headers = [{"name": "tenant", "value": b"x"}]
    assert parts(decode(settings, tombstone(headers=headers), tombstone())) == ([], [0], [1], [])


def test_deletes_have_all_metadata_of_rows_under_the_names_of_the_file() -> None:
    metadata = MetadataColumns(
        topic="t", generation="g", partition="p", offset="o", timestamp="at", timestamp_type="ty"
    )
    decoded = decode(settings_of(metadata=metadata), put(), tombstone())
    assert decoded.deletes is not None
    names = ["t", "g", "p", "ty", "batch_id"]
    assert decoded.deletes.select(names).to_pylist() == decoded.columns.select(names).to_pylist()
    assert (decoded.columns.column("o").to_pylist(), decoded.deletes.column("o").to_pylist()) == ([0], [1])


def test_a_record_time_that_no_column_can_hold_makes_a_delete_a_dead_letter() -> None:
    decoded = decode(settings_of(), tombstone(timestamp_ms=2**62))
    assert reasons(decoded) == {0: DeadLetterReason.RECORD_TIME_OUT_OF_RANGE}


def test_values_that_are_taken_whole_have_deletes_by_tombstone() -> None:
    payload = ColumnSettings("payload", "bytea")
    upsert = replace(BY_OFFSET, key=("k",))
    settings = settings_of(upsert=upsert, key=KeySettings(KeyFormat.RAW, "k", required=True))
    settings = replace(settings, value=ValueSettings(ValueFormat.RAW, (payload,)))
    assert parts(decode(settings, record(b"\xff", key=b"a"), record(b"", key=b"a"), tombstone(b"a"))) == (
        [0, 1],
        [2],
        [],
        [],
    )


def test_only_an_upsert_pipeline_has_changes() -> None:
    settings = settings_of()
    for found, kind in ((settings, ChangeDecoder), (replace(settings, upsert=None), RecordDecoder)):
        assert isinstance(decoder_of(found, target_of(found), batch_id=BATCH_ID), kind)
