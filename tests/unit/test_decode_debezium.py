"""Change events of Debezium: what each record becomes. Recorded ones (``tests/data/debezium``), and some by hand.

What was done to the tables, and so what the values are, stands in ``tests/data/debezium/README.md``.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason, TruncateFound
from kafka_ingest.kafka.registry import RegisteredSchema
from kafka_ingest.settings import BatchSettings
from spark_jobs.decode import record as record_module
from spark_jobs.decode.json import JsonColumns
from spark_jobs.decode.record import opened_schema
from spark_jobs.decode.values import ColumnPlan, DecodedBatch
from tests.change_events import (
    became,
    column,
    decode_events,
    deleted_keys,
    event,
    events_settings,
    of_place,
)
from tests.debezium_samples import RecordedEvent, RecordedRegistry, recorded_events
from tests.decoding import read_columns
from tests.drafting import KnownSchemas
from tests.protobuf_messages import message_class

PLAIN, WITH_SCHEMA, UNWRAPPED = "json-plain-adaptive-precise", "json-schema-adaptive-precise", "json-plain-unwrap"
NAME = "{name: name, type: text}"
BIG = "{name: big, type: text}"
_PLACEHOLDER = b"__debezium_unavailable_value"
#: What workload.py inserts.
FIRST_NAME = 'naïve "q" \\ \U0001f600 \n'


def items(table: str = "items") -> list[Any]:
    return list(recorded_events(PLAIN)[f"a.inventory.{table}"])


def details(settings: BatchSettings, *values: str | None) -> list[str]:
    return [row.detail for row in decode_events(settings, *map(event, values)).dead]


def test_snapshot_inserts_and_updates_are_rows_of_after() -> None:
    decoded = decode_events(events_settings(NAME), *items()[:6])
    assert became(decoded) == ["row"] * 6
    assert column(decoded, "id") == [1, 2, 3, 2, 2, 2]
    assert column(decoded, "name") == [FIRST_NAME, FIRST_NAME, None, "second", "second", "second"]


def test_a_delete_and_its_tombstone_are_deletes_of_their_key() -> None:
    settings = events_settings(NAME)
    decoded = decode_events(settings, *items()[12:14])
    assert became(decoded) == ["delete", "delete"]
    assert deleted_keys(decoded, settings) == [3, 3]


def test_a_tombstone_deletes_also_where_compaction_took_the_event_before_it() -> None:
    settings = events_settings(NAME)
    assert deleted_keys(decode_events(settings, items()[13]), settings) == [3]


def test_a_changed_key_is_a_delete_of_the_old_one_and_a_row_of_the_new_one() -> None:
    settings = events_settings(NAME)
    decoded = decode_events(settings, *items()[6:9])
    assert became(decoded) == ["delete", "delete", "row"]
    assert (deleted_keys(decoded, settings), column(decoded, "id")) == ([2, 2], [20])


def test_a_delete_is_one_although_a_column_of_the_row_is_required() -> None:
    settings = events_settings("{name: name, type: text, required: true}")
    assert became(decode_events(settings, *items()[12:14])) == ["delete", "delete"]


@pytest.mark.parametrize(("deletes", "becomes"), [("ignore", "counted"), ("dead_letter", "tombstone")])
def test_deletes_do_what_the_pipeline_says(deletes: str, becomes: str) -> None:
    settings = events_settings(NAME, target=f"truncate: ignore, deletes: {deletes}")
    assert became(decode_events(settings, *items()[12:14])) == [becomes, becomes]


def test_a_dead_letter_of_a_delete_says_that_it_is_one() -> None:
    settings = events_settings(NAME, target="truncate: ignore, deletes: dead_letter")
    event_of_delete, tombstone = decode_events(settings, *items()[12:14]).dead
    assert 'found an event with the op "d"' in event_of_delete.detail
    assert "found a tombstone" in tombstone.detail


def test_a_truncation_stops_and_names_its_record() -> None:
    settings = events_settings(NAME, target="truncate: stop, deletes: remove")
    with pytest.raises(TruncateFound) as caught:
        decode_events(settings, *items())
    assert "orders[3] offset 21 says that the source table was emptied" in str(caught.value)
    assert "docs/runbook.md, section TruncateFound" in str(caught.value)


def test_a_truncation_is_counted_where_the_pipeline_ignores_it() -> None:
    assert became(decode_events(events_settings(NAME), *items()[20:])) == ["row", "counted", "row"]


def test_logical_messages_are_counted() -> None:
    messages = recorded_events(PLAIN)["a.message"]
    assert became(decode_events(events_settings(NAME), *messages)) == ["counted", "counted"]


def test_events_of_a_table_without_a_key_are_dead_letters_and_its_bare_tombstones_are_counted() -> None:
    decoded = decode_events(events_settings("{name: b, type: text}"), *items("nokey"))
    missing = "missing_required"
    assert became(decoded) == [missing, missing, missing, missing, missing, "counted", missing, "counted"]


def test_a_row_of_nothing_but_null_is_a_row() -> None:
    decoded = decode_events(events_settings(NAME, "{name: day, type: integer}"), items()[2])
    assert (became(decoded), column(decoded, "name"), column(decoded, "day")) == (["row"], [None], [None])


def test_columns_that_were_added_or_dropped_are_missing_where_the_row_has_none() -> None:
    settings = events_settings("{name: extra, type: integer}", "{name: day, type: date, as: epoch_days}")
    decoded = decode_events(settings, *items()[18:21])
    assert column(decoded, "extra") == [None, 6, 6]
    assert column(decoded, "day") == ["2026-02-28", "2026-02-28", None]


def test_columns_read_before_source_and_the_event_itself() -> None:
    settings = events_settings(
        NAME,
        "{name: old_name, type: text, from: before, path: $.name}",
        "{name: lsn, type: bigint, from: source}",
        "{name: done, type: text, from: envelope, path: $.op}",
    )
    decoded = decode_events(settings, *of_place(items("items_full"), 2, 3))
    assert column(decoded, "old_name") == [None, FIRST_NAME]
    assert column(decoded, "done") == ["c", "u"]
    assert all(lsn > 28_000_000 for lsn in column(decoded, "lsn"))


def test_times_texts_documents_and_bytes_are_what_was_inserted() -> None:
    settings = events_settings(
        "{name: doc, type: jsonb, as: json_text}",
        "{name: at, type: timestamptz}",
        "{name: uid, type: uuid}",
        "{name: raw, type: bytea}",
        "{name: tags, type: 'text[]'}",
    )
    decoded = decode_events(settings, items()[1])
    doc = b'{"a": [1, 2.50, null], "n": 12345678901234567890.10, "z": {"k": "v"}}'
    assert column(decoded, "doc") == [doc.decode()]
    assert column(decoded, "at") == ["2026-11-28T10:34:56.123456Z"]  # 12:34:56.123456+02
    assert column(decoded, "uid") == ["123e4567-e89b-12d3-a456-426614174000"]
    assert column(decoded, "raw") == [b"\x00\xff\x10"]
    assert column(decoded, "tags") == [r'{"a",NULL,"b,\"c"}']


# Values that did not travel.


def test_a_row_whose_value_did_not_travel_is_put_apart_and_says_what_to_do_where_nobody_knows_it() -> None:
    decoded = decode_events(events_settings(NAME, BIG), *items()[:5])
    assert became(decoded) == ["row", "row", "row", "partial", "row"]
    assert decoded.partial is not None
    assert decoded.partial.select(["id", "name", "big"]).to_pylist() == [{"id": 2, "name": "second", "big": None}]
    apart = decoded.unavailable[3]
    assert apart.columns == ("big",)
    assert not apart.may_be_null
    assert 'column "big" from $.after.big' in apart.detail
    assert "REPLICA IDENTITY FULL" in apart.detail
    assert "incremental snapshot" in apart.detail


def after(op: str, **row: object) -> RecordedEvent:
    return event(json.dumps({"op": op, "after": row}))


@pytest.mark.parametrize("op", ["c", "r"])
def test_the_first_event_of_a_row_has_its_values_or_is_a_dead_letter(op: str) -> None:
    """Nobody had its key before: after a change of the key no other event has the value."""
    decoded = decode_events(events_settings(NAME, BIG), after(op, name="a", big="__debezium_unavailable_value"))
    assert became(decoded) == ["value_did_not_travel"]


def test_with_write_null_the_first_event_of_a_row_is_one_and_later_ones_may_be_null() -> None:
    settings = events_settings(NAME, BIG, value="envelope: debezium, unavailable: write_null")
    events = (after(op, name="a", big="__debezium_unavailable_value") for op in "cru")
    decoded = decode_events(settings, *events)
    assert became(decoded) == ["row", "row", "partial"]
    assert column(decoded, "big") == [None, None]
    assert decoded.unavailable[2].may_be_null


def test_a_column_that_is_required_is_never_written_as_null() -> None:
    required = "{name: big, type: text, required: true}"
    settings = events_settings(NAME, required, value="envelope: debezium, unavailable: write_null")
    decoded = decode_events(settings, *(after(op, big="__debezium_unavailable_value") for op in "cu"))
    assert became(decoded) == ["value_did_not_travel", "partial"]
    assert not decoded.unavailable[1].may_be_null


def test_every_value_that_did_not_travel_is_named() -> None:
    decoded = decode_events(
        events_settings(NAME, BIG), after("u", **dict.fromkeys(("name", "big"), _PLACEHOLDER.decode()))
    )
    assert decoded.unavailable[0].columns == ("name", "big")


def test_a_record_with_another_fault_is_a_dead_letter_whatever_did_not_travel() -> None:
    settings = events_settings(BIG, "{name: n, type: integer}")
    assert became(decode_events(settings, after("u", big=_PLACEHOLDER.decode(), n="many"))) == ["wrong_type"]


@pytest.mark.parametrize(
    "of",
    [
        "{name: id_too, type: text, from: before, path: $.big}",
        "{name: row, type: jsonb, path: $}",
        "{name: event, type: jsonb, from: envelope, path: $}",
        "{name: part, type: jsonb, path: $.map}",
    ],
)
def test_what_is_no_column_of_the_row_itself_is_not_filled(of: str) -> None:
    """The row before has the value of another column, and a document with one in it differs in others."""
    text = _PLACEHOLDER.decode()
    row = {"big": text, "map": {"a": text, "b": "1"}}
    decoded = decode_events(events_settings(of), event(json.dumps({"op": "u", "before": row, "after": row})))
    assert became(decoded) == ["value_did_not_travel"]


@pytest.mark.parametrize(
    ("of", "value"),
    [
        ("jsonb", {_PLACEHOLDER.decode(): _PLACEHOLDER.decode()}),
        ("uuid[]", ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
        ("jsonb", ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
        ("bytea[]", [b64encode(_PLACEHOLDER).decode()]),
    ],
)
def test_maps_and_arrays_of_uuid_and_bytes_have_forms_of_their_own(of: str, value: object) -> None:
    """As ``UnchangedToastedPlaceholder`` of Debezium's PostgreSQL connector makes them."""
    decoded = decode_events(events_settings(f"{{name: a, type: '{of}'}}"), after("u", a=value))
    assert became(decoded) == ["partial"]


def test_only_columns_that_the_pipeline_reads_are_looked_at() -> None:
    assert became(decode_events(events_settings(NAME), *items()[:5])) == ["row"] * 5


def test_with_the_whole_row_in_the_log_every_value_travels() -> None:
    assert became(decode_events(events_settings(NAME, BIG), *items("items_full")[:5])) == ["row"] * 5


#: Columns of ``toasts``, which an update leaves alone: at offset 3 all, at offset 4 all but big_json.
TOASTS = [
    "{name: big_text, type: text}",
    "{name: big_text, type: varchar(1000)}",
    "{name: big_bytes, type: bytea}",
    "{name: big_bytes, type: text}",
    "{name: big_array, type: 'text[]'}",
    "{name: big_array, type: jsonb}",
    "{name: big_ints, type: 'integer[]'}",
    "{name: big_ints, type: jsonb}",
    "{name: row, type: jsonb, path: $}",
    "{name: event, type: jsonb, from: envelope, path: $}",
]


@pytest.mark.parametrize("of", TOASTS)
def test_the_placeholder_is_found_in_the_form_of_each_type(of: str) -> None:
    decoded = decode_events(events_settings(of), *of_place(items("toasts"), 1, 3, 4))
    apart = "value_did_not_travel" if "path: $}" in of else "partial"
    assert became(decoded) == ["row", apart, apart]


@pytest.mark.parametrize("of", ["{name: big_json, type: jsonb}", "{name: big_json, type: jsonb, as: json_text}"])
def test_a_document_that_was_changed_travels_beside_values_that_were_not(of: str) -> None:
    decoded = decode_events(events_settings(of), *of_place(items("toasts"), 1, 3, 4))
    assert became(decoded) == ["row", "partial", "row"]


@pytest.mark.parametrize("of", ["{name: a, type: bytea, as: hex}", "{name: a, type: text}"])
def test_the_placeholder_is_found_as_hexadecimal_digits(of: str) -> None:
    digits = b"__debezium_unavailable_value".hex()
    assert became(decode_events(events_settings(of), after("u", a=digits))) == ["partial"]


def test_another_placeholder_is_looked_for_where_the_file_names_one() -> None:
    settings = events_settings(BIG, value="envelope: debezium, unavailable_placeholder: not there")
    values = ('{"op":"u","after":{"big":"not there"}}', '{"op":"u","after":{"big":"__debezium_unavailable_value"}}')
    assert became(decode_events(settings, *map(event, values))) == ["partial", "row"]


def test_a_deleted_row_may_have_values_that_did_not_travel() -> None:
    value = '{"op":"d","before":{"big":"__debezium_unavailable_value"},"after":null}'
    settings = events_settings("{name: big, type: text, from: before}")
    assert became(decode_events(settings, event(value))) == ["delete"]


# Values of forms that no column can take.


@pytest.mark.parametrize(
    ("of", "raw", "hint"),
    [
        ("'numeric(12,3)'", '"EtZE"', "decimal.handling.mode=precise"),
        ("numeric", '{"scale":6,"value":"hQ=="}', "decimal.handling.mode=precise"),
        ("'numeric(12,3)'", '"1234.500"', "as: number_text"),
        ("'numeric(12,3)'", '"1000"', "decimal.handling.mode=precise"),  # the bytes d7 4d 34, or a thousand
        ("'numeric(8,2)[]'", '["1.10"]', "as: number_text"),
    ],
)
def test_a_decimal_without_its_scale_is_never_taken_for_a_number(of: str, raw: str, hint: str) -> None:
    settings = events_settings(f"{{name: price, type: {of}}}")
    [detail] = details(settings, f'{{"op":"c","after":{{"price":{raw}}}}}')
    assert hint in detail


def test_decimals_are_read_where_the_connector_writes_them_as_text() -> None:
    settings = events_settings("{name: price, type: 'numeric(12,3)', as: number_text}")
    events = recorded_events("json-plain-connect-string")["c.inventory.items"]
    assert column(decode_events(settings, *events), "price") == ["1234.500", "99.990"]


def test_a_number_is_read_where_the_connector_writes_one() -> None:
    settings = events_settings("{name: price, type: 'numeric(12,3)'}")
    assert column(decode_events(settings, event('{"op":"c","after":{"price":1234.5}}')), "price") == ["1234.5"]


# Records that are no change of a row.


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ('{"op":"c","after":null}', "expected the row in after"),
        ('{"op":"u"}', "expected the row in after"),
        ('{"op":"r","after":"x"}', "expected the row in after"),
        ('{"op":"x","after":{}}', 'found the string "x"'),
        ('{"op":"\\u0000","after":{}}', "expected a change event with the op"),
        ('{"op":null,"after":{}}', "expected a change event with the op"),
        ('{"status":"BEGIN","id":"774:28485152","ts_ms":1}', "the beginning or end of a transaction"),
        ('{"source":{},"databaseName":"shop","ddl":"CREATE TABLE a ()"}', "a schema change"),
        ('{"ts_ms":1795901230327}', "a heartbeat"),
        ('{"schema":{},"payload":{"op":"c","after":{}}}', "say value.with_schema: [value]"),
        ('{"id":1,"name":"x","__deleted":"false"}', "the row of an unwrapped event"),
        ('{"id":1,"name":"x"}', "the members id, name"),
        ("{}", "an empty object"),
    ],
)
def test_what_is_no_change_of_a_row_is_a_dead_letter_that_says_what_it_looks_like(value: str, found: str) -> None:
    decoded = decode_events(events_settings(NAME), event(value))
    [dead] = decoded.dead
    assert (dead.reason.value, found in dead.detail) == ("wrong_type", True), dead.detail
    assert dead.detail.isprintable()


def test_the_recorded_marks_of_transactions_are_dead_letters_that_say_so() -> None:
    marks = recorded_events("json-plain-isostring-double-txn")["f.transaction"]
    decoded = decode_events(events_settings(NAME), *marks)
    assert became(decoded) == ["wrong_type"] * 6
    assert all("the beginning or end of a transaction" in row.detail for row in decoded.dead)


def test_what_is_no_json_stays_malformed() -> None:
    assert became(decode_events(events_settings(NAME), event("no JSON"), event("[1]"))) == ["malformed", "wrong_type"]


def test_a_value_that_no_column_can_hold_stays_a_dead_letter_of_its_own_reason() -> None:
    settings = events_settings("{name: day, type: integer}")
    [detail] = details(settings, '{"op":"c","after":{"day":"x"}}')
    assert 'column "day" from $.after.day' in detail


# JSON beside its schema.


def test_events_beside_their_schema_are_read_below_payload() -> None:
    settings = events_settings(NAME, value="envelope: debezium, with_schema: [value, key]")
    decoded = decode_events(settings, *recorded_events(WITH_SCHEMA)["b.inventory.items"])
    assert became(decoded) == ["row", "row", "delete", "delete", "row", "row", "counted"]
    assert column(decoded, "id") == [1, 2, 20, 4]
    assert column(decoded, "name") == [FIRST_NAME, "second", "second", "again"]


def test_an_event_without_payload_says_what_was_expected() -> None:
    settings = events_settings(NAME, value="envelope: debezium, with_schema: [value]")
    [detail] = details(settings, '{"op":"c","after":{"name":"x"}}')
    assert "expected a change event at $.payload" in detail


# Avro: by whole columns where there are many, else record by record.

_AVRO_VALUE = "format: avro, envelope: debezium"
_AVRO_FILE = {"kafka": "{topics: [orders], registry: schema_registry_default}", "key": "{format: avro}"}


@pytest.fixture
def avro(monkeypatch: pytest.MonkeyPatch) -> Callable[..., DecodedBatch]:
    """Decode recorded records of Avro; their schemas come from a file."""
    monkeypatch.setattr(record_module, "SchemaRegistry", lambda _: RecordedRegistry())

    def decode(settings: BatchSettings, *events: RecordedEvent) -> DecodedBatch:
        return decode_events(settings, *events, registry={"url": "recorded"})

    return decode


def avro_items(*columns: str) -> BatchSettings:
    return events_settings(*columns, value=_AVRO_VALUE, **_AVRO_FILE)


@pytest.mark.parametrize("times", [1, 20])
def test_events_of_avro_are_rows_and_deletes(avro: Callable[..., DecodedBatch], times: int) -> None:
    settings = avro_items(NAME, "{name: price, type: 'numeric(12,3)'}", "{name: lsn, type: bigint, from: source}")
    events = [*recorded_events("avro-confluent-framing")["g.inventory.items"]] * times
    decoded = avro(settings, *events)
    assert became(decoded) == ["row", "row", "row", "delete", "delete", "row", "row", "counted"] * times
    assert column(decoded, "id") == [1, 2, 2, 20, 4] * times
    assert column(decoded, "name") == [FIRST_NAME, FIRST_NAME, "second", "second", "again"] * times
    assert column(decoded, "price") == ["1234.500", "1234.500", "99.990", "99.990", "1234.500"] * times
    assert deleted_keys(decoded, settings) == [2, 2] * times


@pytest.mark.parametrize(
    ("of", "kind", "value"),
    [
        ("text", "string", _PLACEHOLDER.decode()),
        ("bytea", "bytes", _PLACEHOLDER),
        ("text[]", {"type": "array", "items": "string"}, [_PLACEHOLDER.decode()]),
        ("integer[]", {"type": "array", "items": "int"}, list(_PLACEHOLDER)),
        ("jsonb", "string", _PLACEHOLDER.decode()),
    ],
)
def test_the_placeholder_is_found_in_avro_by_whole_columns_and_record_by_record(of: str, kind: Any, value: Any) -> None:
    schema = {"type": "record", "name": "Row", "fields": [{"name": "a", "type": kind}]}
    written = BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), {"a": value})
    payloads = pa.array([written.getvalue()] * 100, pa.large_binary())
    plans = [ColumnPlan("a", parse_column_type(of), ("a",), unavailable=_PLACEHOLDER.decode())]
    opened = opened_schema("AVRO", RegisteredSchema("AVRO", json.dumps(schema), {}))
    assert opened.quick_columns is not None
    assert opened.documents is not None
    found = opened.quick_columns(payloads, plans)
    assert found is not None
    assert list(found[0].doubtful) == list(range(100))
    documents = pa.array(opened.documents(payloads.to_pylist()), pa.large_binary())
    errors = JsonColumns(plans, of_binary=True).decode(documents).decode_errors
    assert [error.reason.value for error in errors.values()] == ["value_did_not_travel"] * 100


@pytest.mark.parametrize(
    "of", ["text", "varchar(50)", "bytea", "jsonb", "text[]", "integer[]", "numeric", "uuid", "date"]
)
def test_both_ways_of_reading_json_find_the_same_placeholders_and_values(of: str) -> None:
    text = _PLACEHOLDER.decode()
    missing = [text, b64encode(_PLACEHOLDER).decode(), _PLACEHOLDER.hex(), [text], list(_PLACEHOLDER), {"a": text}]
    others: list[Any] = [f"{text}s", "AP8Q", "2026-01-31", "1.5", [text, text], {"a": 1}, 1.5, None]
    plan = ColumnPlan("a", parse_column_type(of), ("a",), unavailable=text)
    outcomes = read_columns([plan], *(json.dumps({"a": value}).encode() for value in (*missing, *others)))
    found = [getattr(outcome, "reason", None) is DeadLetterReason.VALUE_DID_NOT_TRAVEL for outcome in outcomes]
    assert found == [True] * len(missing) + [False] * len(others)


# Protobuf, written by hand: what converters make of an envelope is a message like this one.

_PROTO = """
syntax = "proto3";
message Envelope { optional Row before = 1; optional Row after = 2; Source source = 3; string op = 4; }
message Row { int64 id = 1; optional string name = 2; optional bytes raw = 3; }
message Source { int64 lsn = 1; }
"""


@pytest.mark.parametrize("times", [1, 40])
def test_events_of_protobuf_are_rows_deletes_and_values_that_did_not_travel(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    schemas = KnownSchemas({7: RegisteredSchema("PROTOBUF", _PROTO, {})})
    monkeypatch.setattr(record_module, "SchemaRegistry", lambda _: schemas)
    settings = events_settings(
        NAME,
        "{name: raw, type: bytea}",
        value="format: protobuf, envelope: debezium",
        kafka="{topics: [orders], registry: schema_registry_default}",
    )
    of = message_class(_PROTO, "Envelope")
    messages = [
        of(op="c", after={"id": 1, "name": "a", "raw": b"\x00"}, source={"lsn": 5}),
        of(op="u", after={"id": 1, "name": "a", "raw": _PLACEHOLDER}),
        of(op="u", after={"id": 1, "name": _PLACEHOLDER.decode()}),
        of(op="d", before={"id": 1}),
        of(op="t"),
        of(op="u"),
        of(after={"id": 1}),
    ]
    values = [b"\x00\x00\x00\x00\x07\x00" + message.SerializeToString() for message in messages]
    events = [RecordedEvent(b'{"id":1}', value, ()) for value in values] * times
    decoded = decode_events(settings, *events, registry={"url": f"protobuf {times}"})
    apart = "partial"
    assert became(decoded) == ["row", apart, apart, "delete", "counted", "wrong_type", "wrong_type"] * times
    assert column(decoded, "raw") == [b"\x00"] * times


# Rows that the connector has unwrapped: nothing of the above is needed.


def test_unwrapped_events_are_read_by_delete_when() -> None:
    settings = events_settings(
        NAME,
        value="new_fields: ignore",
        target='deletes: remove, delete_when: {path: $.__deleted, equals: "true"}',
    )
    decoded = decode_events(settings, *recorded_events(UNWRAPPED)["e.inventory.items"])
    assert became(decoded) == ["row", "row", "row", "delete", "delete", "row", "row", "row"]
    assert deleted_keys(decoded, settings) == [2, 2]
    assert column(decoded, "name") == [FIRST_NAME, "second", "second", "second", "no day", "after truncate"]
