from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.settings import (
    BatchSettings,
    ColumnSettings,
    KeyFormat,
    KeySettings,
    MetadataColumns,
    Tombstones,
    ValueFormat,
    ValueSettings,
)
from spark_jobs.decode.json import JsonColumns
from spark_jobs.decode.values import ColumnPlan
from spark_jobs.records import LOG_APPEND_TIME, NO_TIMESTAMP
from tests.builders import batch_settings
from tests.decoding import BATCH_ID, decode, json_settings, reasons, record

A = ColumnSettings("a", "integer", ("a",))
REQUIRED_A = replace(A, required=True)


def column(decoded: Any, name: str) -> list[Any]:
    values: list[Any] = decoded.columns.column(name).to_pylist()
    return values


def whole(value_format: ValueFormat, type_name: str, **changes: Any) -> BatchSettings:
    value = ValueSettings(value_format, (ColumnSettings("v", type_name),))
    return replace(batch_settings(), value=value, **changes)


def test_rows_keep_their_order_and_dead_letters_and_tombstones_are_told_apart() -> None:
    settings = json_settings(A, tombstones=Tombstones.COUNT)
    values = [b'{"a": 1}', None, b"nope", b'{"a": 4}', None, b'{"a": "x"}', b'{"a": 7}']
    decoded = decode(settings, *map(record, values))
    assert column(decoded, "a") == [1, 4, 7]
    assert list(decoded.row_index) == [0, 3, 6]
    assert reasons(decoded) == {2: DeadLetterReason.MALFORMED, 5: DeadLetterReason.WRONG_TYPE}
    assert list(decoded.tombstones) == [1, 4]


def test_an_empty_batch_gives_no_rows() -> None:
    assert decode(json_settings(A)).columns.num_rows == 0


def test_metadata_tells_where_a_row_comes_from() -> None:
    settings = json_settings(A, metadata=MetadataColumns(timestamp_type="kafka_timestamp_type"))
    decoded = decode(
        settings,
        record(timestamp_ms=1_795_827_723_004),
        record(timestamp_ms=0, timestamp_type=LOG_APPEND_TIME),
        record(timestamp_ms=None, timestamp_type=NO_TIMESTAMP),
    )
    assert (
        decoded.columns.select(["kafka_topic", "kafka_generation", "kafka_partition", "batch_id"]).to_pylist()
        == [{"kafka_topic": "orders", "kafka_generation": 0, "kafka_partition": 3, "batch_id": BATCH_ID}] * 3
    )
    assert column(decoded, "kafka_offset") == [0, 1, 2]
    assert column(decoded, "kafka_timestamp") == [
        datetime(2026, 11, 28, 1, 2, 3, 4000, UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        None,
    ]
    assert column(decoded, "kafka_timestamp_type") == ["create", "log_append", None]


@pytest.mark.parametrize(
    ("time_ms", "time"),
    [
        (-62_135_596_800_000, datetime(1, 1, 1, tzinfo=UTC)),
        (253_402_300_799_999, datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)),
        (-1, datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
    ],
)
def test_a_record_time_within_the_years_1_to_9999_is_kept_to_the_millisecond(time_ms: int, time: datetime) -> None:
    assert column(decode(json_settings(A), record(timestamp_ms=time_ms)), "kafka_timestamp") == [time]


@pytest.mark.parametrize("time_ms", [-62_135_596_800_001, 253_402_300_800_000, 2**63 - 1, -(2**63)])
def test_a_record_time_outside_the_years_1_to_9999_is_a_dead_letter(time_ms: int) -> None:
    decoded = decode(json_settings(A), record(timestamp_ms=time_ms))
    assert reasons(decoded) == {0: DeadLetterReason.RECORD_TIME_OUT_OF_RANGE}
    assert str(time_ms) in decoded.dead[0].detail


def test_a_record_without_a_time_is_refused_only_by_a_not_null_column() -> None:
    settings = json_settings(A, metadata=MetadataColumns(timestamp_type="time_type"))
    timeless = record(timestamp_ms=None, timestamp_type=NO_TIMESTAMP)
    assert reasons(decode(settings, timeless)) == {}
    for name in ("kafka_timestamp", "time_type"):
        refused = decode(settings, timeless, record(), not_null=[name])
        assert reasons(refused) == {0: DeadLetterReason.NOT_NULL_VIOLATION}


def test_a_tombstone_is_a_row_of_nulls_where_the_columns_allow_it() -> None:
    decoded = decode(json_settings(A), record(b'{"a": 1}'), record(None))
    assert column(decoded, "a") == [1, None]


def test_a_tombstone_row_is_refused_by_required_and_by_not_null_columns() -> None:
    required = decode(json_settings(A, replace(REQUIRED_A, name="b")), record(None))
    assert reasons(required) == {0: DeadLetterReason.MISSING_REQUIRED}
    assert required.dead[0].detail == 'column "b" from $.a: expected a value, found a tombstone (a null value)'
    not_null = decode(json_settings(A), record(None), not_null=["a"])
    assert reasons(not_null) == {0: DeadLetterReason.NOT_NULL_VIOLATION}


@pytest.mark.parametrize(
    "settings",
    [json_settings(REQUIRED_A), whole(ValueFormat.JSON, "jsonb"), whole(ValueFormat.RAW, "bytea")],
    ids=["json_columns", "json", "raw"],
)
def test_tombstones_follow_the_pipelines_rule_in_every_format(settings: BatchSettings) -> None:
    values = [record(b'{"a": 1}'), record(None)]
    dead = decode(replace(settings, tombstones=Tombstones.DEAD_LETTER), *values)
    assert reasons(dead) == {1: DeadLetterReason.TOMBSTONE}
    counted = decode(replace(settings, tombstones=Tombstones.COUNT), *values)
    assert (list(counted.tombstones), reasons(counted)) == ([1], {})


def test_a_counted_tombstone_is_counted_whatever_else_is_wrong_with_it() -> None:
    settings = json_settings(A, tombstones=Tombstones.COUNT, headers_column="headers")
    decoded = decode(settings, record(None, timestamp_ms=2**62, headers_readable=False))
    assert (list(decoded.tombstones), decoded.dead) == ([0], [])


def test_headers_keep_order_repeated_names_and_null_values() -> None:
    headers = [("b", b"\x00\xff"), ("a", None), ("b", b""), ("\u00e9", b"x")]
    settings = json_settings(A, headers_column="headers")
    decoded = decode(settings, record(headers=headers), record(), record(headers=[]), record(headers=[("z", b"1")]))
    assert column(decoded, "headers") == [
        '[{"key":"b","value":"AP8="},{"key":"a","value":null},{"key":"b","value":""},{"key":"\u00e9","value":"eA=="}]',
        "[]",
        "[]",
        '[{"key":"z","value":"MQ=="}]',
    ]


def test_headers_that_cannot_be_stored_are_refused_only_where_they_are_kept() -> None:
    records = [record(), record(headers_readable=False), record(headers=[("a\x00", b"")])]
    assert reasons(decode(json_settings(A, headers_column="headers"), *records)) == {
        1: DeadLetterReason.UNREADABLE_HEADERS,
        2: DeadLetterReason.UNSUPPORTED_TEXT,
    }
    assert reasons(decode(json_settings(A), *records)) == {}


@pytest.mark.parametrize(
    ("key_format", "keys", "kept"),
    [
        (KeyFormat.RAW, [b"\x80", b"", None, b"k"], [b"\x80", b"", None, b"k"]),
        (KeyFormat.TEXT, ["\u00e9".encode(), b"", None, b"null"], ["\u00e9", "", None, "null"]),
        (KeyFormat.JSON, [b'{"id": 1}', b"null", None, b' "k" '], ['{"id": 1}', "null", None, ' "k" ']),
    ],
)
def test_keys_are_kept_exactly(key_format: KeyFormat, keys: list[bytes | None], kept: list[Any]) -> None:
    settings = json_settings(A, key=KeySettings(key_format, "kafka_key"))
    decoded = decode(settings, *(record(key=key) for key in keys))
    assert column(decoded, "kafka_key") == kept


@pytest.mark.parametrize(
    ("key_format", "key", "reason"),
    [
        (KeyFormat.TEXT, b"\x80", DeadLetterReason.NOT_UTF8),
        (KeyFormat.TEXT, b"a\x00", DeadLetterReason.UNSUPPORTED_TEXT),
        (KeyFormat.JSON, b"\x80", DeadLetterReason.NOT_UTF8),
        (KeyFormat.JSON, b"", DeadLetterReason.MALFORMED),
        (KeyFormat.JSON, b"k", DeadLetterReason.MALFORMED),
        (KeyFormat.JSON, rb'"\u0000"', DeadLetterReason.UNSUPPORTED_TEXT),
        (KeyFormat.JSON, b"1e999999", DeadLetterReason.OUT_OF_RANGE),
    ],
)
def test_a_key_that_its_format_cannot_read_is_a_dead_letter(
    key_format: KeyFormat, key: bytes, reason: DeadLetterReason
) -> None:
    settings = json_settings(A, key=KeySettings(key_format, "kafka_key"))
    decoded = decode(settings, record(key=b'"k"'), record(key=key))
    assert reasons(decoded) == {1: reason}
    assert decoded.dead[0].detail.startswith('column "kafka_key" from the key: ')


def test_a_null_key_is_refused_by_a_required_key_and_by_a_not_null_column() -> None:
    optional = json_settings(A, key=KeySettings(KeyFormat.RAW, "kafka_key"))
    assert reasons(decode(optional, record(), not_null=["kafka_key"])) == {0: DeadLetterReason.NOT_NULL_VIOLATION}
    required = json_settings(A, key=KeySettings(KeyFormat.RAW, "kafka_key", required=True))
    assert reasons(decode(required, record(), record(key=b""))) == {0: DeadLetterReason.MISSING_REQUIRED}


def test_the_value_is_judged_before_the_key() -> None:
    settings = json_settings(A, key=KeySettings(KeyFormat.TEXT, "kafka_key"))
    assert reasons(decode(settings, record(b"nope", key=b"\x80"))) == {0: DeadLetterReason.MALFORMED}


def test_raw_values_are_kept_byte_for_byte() -> None:
    values = [b"", b"\x00\xff", b"null", bytes(range(256)), None]
    assert column(decode(whole(ValueFormat.RAW, "bytea"), *map(record, values)), "v") == values


def test_text_values_are_strict_utf8() -> None:
    values = ["\u00e9\U0001f600".encode(), b"", b"\xff", b"a\x00b", None, b"caf\xe9", b" x "]
    decoded = decode(whole(ValueFormat.TEXT, "text"), *map(record, values))
    assert column(decoded, "v") == ["\u00e9\U0001f600", "", None, " x "]
    assert reasons(decoded) == {
        2: DeadLetterReason.NOT_UTF8,
        3: DeadLetterReason.UNSUPPORTED_TEXT,
        5: DeadLetterReason.NOT_UTF8,
    }


def test_whole_json_values_are_kept_as_text_and_json_null_is_no_sql_null() -> None:
    values = [b'{"a": 0.10}', b"null", None, b"1e400", b'"x"', b"[[]]"]
    decoded = decode(whole(ValueFormat.JSON, "jsonb"), *map(record, values))
    assert column(decoded, "v") == ['{"a": 0.10}', "null", None, "1e400", '"x"', "[[]]"]


def test_whole_json_values_that_jsonb_cannot_hold_are_dead_letters() -> None:
    values = [b"", b"nope", b'"\xff"', rb'"\u0000"', rb'"\ud800"', b"1e999999", b"[" * 5_000 + b"]" * 5_000, b"{}"]
    decoded = decode(whole(ValueFormat.JSON, "jsonb"), *map(record, values))
    assert list(decoded.row_index) == [7]
    assert reasons(decoded) == {
        0: DeadLetterReason.MALFORMED,
        1: DeadLetterReason.MALFORMED,
        2: DeadLetterReason.NOT_UTF8,
        3: DeadLetterReason.UNSUPPORTED_TEXT,
        4: DeadLetterReason.UNSUPPORTED_TEXT,
        5: DeadLetterReason.OUT_OF_RANGE,
        6: DeadLetterReason.MALFORMED,
    }


@pytest.mark.parametrize("key", ["plain", "ключ", "é", "日本", 'quo"te', "back\\slash", 'ключ"', "😀"])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_a_key_is_found_whatever_its_characters_and_however_they_are_written(key: str, is_ascii: bool) -> None:
    values = [json.dumps({key: n, "b": n, "other": [n]}, ensure_ascii=is_ascii).encode() for n in (1, 2)]
    for is_quick in (False, True):
        # A text of its own each time: msgspec finds a key in a TypedDict once something else has asked for its UTF-8.
        fresh = "".join(list(key))
        plans = [ColumnPlan(name, parse_column_type("integer"), (path,)) for name, path in (("a", fresh), ("b", "b"))]
        part = JsonColumns(plans, quick=is_quick).decode(pa.array([*values, b"{}"], pa.large_binary()))
        assert [array.to_pylist() for array in part.arrays] == [[1, 2, None], [1, 2, None]]


def test_a_slice_of_a_batch_is_decoded_as_itself() -> None:
    from spark_jobs.decode.record import RecordDecoder
    from tests.decoding import batch_of, target_of

    settings = json_settings(A, headers_column="headers", key=KeySettings(KeyFormat.JSON, "k"))
    records = [record(b'{"a": %d}' % n, key=b"%d" % n, headers=[(str(n), None)] * n) for n in range(4)]
    batch = batch_of(*records[:2], record(None), *records[2:]).slice(1, 3)
    decoder = RecordDecoder(settings, target_of(settings), batch_id=BATCH_ID)
    decoded = decoder.decode(batch, generation=5)
    assert column(decoded, "a") == [1, None, 2]
    assert column(decoded, "k") == ["1", None, "2"]
    assert column(decoded, "kafka_generation") == [5, 5, 5]
    assert column(decoded, "headers") == [
        '[{"key":"1","value":null}]',
        "[]",
        '[{"key":"2","value":null},{"key":"2","value":null}]',
    ]
