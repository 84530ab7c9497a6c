"""Public reports of wrong values, retold: what must become of each record instead."""

from __future__ import annotations

from dataclasses import replace

from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.settings import ColumnSettings, KeyFormat, KeySettings, ValueFormat, ValueSettings
from tests.builders import batch_settings
from tests.decoding import decode, json_settings, reasons, record

NOTE = ColumnSettings("a", "text", ("a",))


def test_c13_only_a_real_zero_character_is_refused_and_an_escaped_backslash_is_stored() -> None:
    settings = json_settings(NOTE, ColumnSettings("document", "jsonb"), key=KeySettings(KeyFormat.TEXT, "kafka_key"))
    decoded = decode(
        settings,
        record(rb'{"a":"x\u0000y"}'),
        record(rb'{"a":"\\u0000"}'),
        record(b'{"a":"x\x00y"}'),
        record(b'{"a":"x"}', key=b"k\x00"),
        record(b'{"a":"x"}', key=b"k"),
    )
    assert reasons(decoded) == {
        0: DeadLetterReason.UNSUPPORTED_TEXT,
        2: DeadLetterReason.MALFORMED,  # JSON itself allows no bare control character in a string
        3: DeadLetterReason.UNSUPPORTED_TEXT,
    }
    assert decoded.columns.select(["a", "document"]).to_pylist() == [
        {"a": "\\u0000", "document": r'{"a":"\\u0000"}'},
        {"a": "x", "document": '{"a":"x"}'},
    ]


def test_c15_bytes_that_are_not_utf8_are_never_replaced_and_raw_keys_stay_distinct() -> None:
    text = ValueSettings(ValueFormat.TEXT, (ColumnSettings("v", "text"),))
    settings = replace(batch_settings(), value=text, key=KeySettings(KeyFormat.RAW, "kafka_key"))
    decoded = decode(
        settings,
        record(b"\xff\xfe\x80"),
        record(b"caf\xe9"),
        record("caf\u00e9".encode(), key=b"\x80"),
        record(b"x", key=b"\x81"),
    )
    assert reasons(decoded) == {0: DeadLetterReason.NOT_UTF8, 1: DeadLetterReason.NOT_UTF8}
    assert decoded.columns.column("v").to_pylist() == ["caf\u00e9", "x"]
    assert decoded.columns.column("kafka_key").to_pylist() == [b"\x80", b"\x81"]


def test_c18_null_empty_bytes_and_json_null_are_three_different_things() -> None:
    key = KeySettings(KeyFormat.RAW, "kafka_key")
    records = [
        record(b'{"a": "x"}', key=b"1"),
        record(None, key=b"1"),
        record(b'{"a": "x"}', key=None),
        record(b"", key=b""),
        record(b"null", key=b"2"),
    ]
    raw = ValueSettings(ValueFormat.RAW, (ColumnSettings("v", "bytea"),))
    as_bytes = decode(replace(batch_settings(), value=raw, key=key), *records)
    assert as_bytes.columns.column("v").to_pylist() == [b'{"a": "x"}', None, b'{"a": "x"}', b"", b"null"]
    assert as_bytes.columns.column("kafka_key").to_pylist() == [b"1", b"1", None, b"", b"2"]

    whole = ValueSettings(ValueFormat.JSON, (ColumnSettings("v", "jsonb"),))
    as_json = decode(replace(batch_settings(), value=whole, key=key), *records)
    assert as_json.columns.column("v").to_pylist() == ['{"a": "x"}', None, '{"a": "x"}', "null"]
    assert reasons(as_json) == {3: DeadLetterReason.MALFORMED}

    # A JSON null as the whole document is no tombstone: a row of NULLs would be taken for one.
    as_columns = decode(json_settings(NOTE, key=key), *records)
    assert as_columns.columns.column("a").to_pylist() == ["x", None, "x"]
    assert reasons(as_columns) == {3: DeadLetterReason.MALFORMED, 4: DeadLetterReason.WRONG_TYPE}


def test_c40_numbers_that_do_not_fit_are_refused_and_never_rounded_or_cut() -> None:
    settings = json_settings(
        ColumnSettings("i", "integer", ("i",)),
        ColumnSettings("n", "numeric(5,2)", ("n",)),
        ColumnSettings("d", "double precision", ("d",)),
    )
    decoded = decode(
        settings,
        record(b'{"i": 3707109316}'),
        record(b'{"n": 12345.6}'),
        record(b'{"d": 0.1234567890123456789}'),
        record(b'{"i": 2147483647, "n": 999.99, "d": 0.12345678901234568}'),
    )
    assert reasons(decoded) == dict.fromkeys(range(3), DeadLetterReason.OUT_OF_RANGE)
    assert decoded.columns.select(["i", "n", "d"]).to_pylist() == [
        {"i": 2147483647, "n": "999.99", "d": 0.12345678901234568}
    ]


def test_c43_framed_bytes_are_never_decoded_as_json_and_are_kept_by_the_raw_format() -> None:
    framed_avro, framed_json, short = b"\x00\x00\x00\x00\x02\x06abc", b'\x00\x00\x00\x00\x01{"a": "x"}', b"\x00\x00\x00"
    records = [record(framed_avro), record(framed_json), record(b'{"a": "x"}'), record(short)]
    decoded = decode(json_settings(NOTE), *records)
    assert reasons(decoded) == dict.fromkeys((0, 1, 3), DeadLetterReason.MALFORMED)
    assert "framed by a schema registry (schema id 2)" in decoded.dead[0].detail
    assert "framed by a schema registry (schema id 1)" in decoded.dead[1].detail
    assert "schema registry" not in decoded.dead[2].detail
    assert decoded.columns.column("a").to_pylist() == ["x"]

    raw = ValueSettings(ValueFormat.RAW, (ColumnSettings("v", "bytea"),))
    kept = decode(replace(batch_settings(), value=raw), *records)
    assert kept.columns.column("v").to_pylist() == [framed_avro, framed_json, b'{"a": "x"}', short]
