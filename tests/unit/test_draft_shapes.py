"""What a draft says of whole values, keys, headers, tombstones and envelopes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kafka_ingest.draft.topic import DraftRequest, draft_of_topic
from kafka_ingest.draft.writing import pipeline_name, scalar
from kafka_ingest.errors import ConfigError
from kafka_ingest.kafka.sample import SampledRecord
from kafka_ingest.settings import KeyFormat, Tombstones, ValueFormat
from tests.debezium_samples import FILES, recorded_events
from tests.drafting import REQUEST, decoded, draft_text, sampled, settings_of, values_of


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (['{"a":1}'], ValueFormat.JSON_COLUMNS),
        (["[1]", "2", "null", '{"a":1}'], ValueFormat.JSON),
        (["a line", "", "ä"], ValueFormat.TEXT),
        (["a line", '{"a":1}'], ValueFormat.RAW),
        (["a\x00line"], ValueFormat.RAW),
        (['["\\u0000"]', "1"], ValueFormat.RAW),
        (['{"a":"\\u0000"}'], ValueFormat.RAW),
        ([b"\xff"], ValueFormat.RAW),
        ([None], ValueFormat.RAW),
    ],
)
def test_the_format_is_one_that_takes_every_value(values: list[str | bytes | None], expected: ValueFormat) -> None:
    records = values_of(*values)
    text = draft_text(records)
    assert settings_of(text).batch.value.format is expected
    assert decoded(text, records).dead == []


def test_a_mixed_topic_is_raw_and_the_file_says_what_was_seen_and_where() -> None:
    text = draft_text(values_of(*(['{"a":1}'] * 3), b"\xff\xfe"))
    assert "JSON objects: 3 of 4 (75.0 %), first at partition 0 offset 0" in text
    assert "bytes that are no text: 1 of 4 (25.0 %), first at partition 0 offset 3" in " ".join(
        line.strip("# ") for line in text.splitlines()
    )


def test_a_few_faulty_values_leave_the_columns_of_the_others_as_a_comment() -> None:
    records = values_of(*([b'{"id":1,"name":"x"}'] * 19), b"oops")
    text = draft_text(records)
    assert settings_of(text).batch.value.format is ValueFormat.RAW
    instead = text.replace("  format: raw\n  column: payload\n", "").replace("\n#   ", "\n  ")
    assert "write instead" in instead
    assert [column.name for column in settings_of(instead).batch.value.columns] == ["id", "name"]
    assert [row.row_index for row in decoded(instead, records).dead] == [19]
    assert "write instead" not in draft_text(records[1:])


def test_frames_of_a_registry_are_raw_and_name_their_schemas() -> None:
    frames = [b"\x00\x00\x00\x00" + bytes([number]) + b"x" for number in (7, 7, 9)]
    text = draft_text(values_of(*frames))
    assert "framed by a schema registry: 3 of 3 (100.0 %)" in text
    assert "schema ids: 7 in 2 of 3 (66.7 %), 9 in 1 of 3 (33.3 %)" in text
    assert settings_of(text).batch.value.format is ValueFormat.RAW


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([b"k1", None], KeyFormat.TEXT),
        ([b"1", b"2"], KeyFormat.TEXT),
        ([b'"a"', b'["b"]'], KeyFormat.JSON),
        ([b'{"id":1}', b"2"], KeyFormat.JSON),
        ([b"\x80"], KeyFormat.RAW),
        ([b"a\x00"], KeyFormat.RAW),
        ([b"\x00\x00\x00\x00\x05k"], KeyFormat.RAW),
    ],
)
def test_a_key_is_one_column_in_the_format_that_takes_all(keys: list[bytes | None], expected: KeyFormat) -> None:
    records = [sampled(b'{"a":1}', offset=offset, key=key) for offset, key in enumerate(keys)]
    text = draft_text(records)
    key = settings_of(text).batch.key
    assert key is not None
    assert (key.format, key.column) == (expected, "key")
    assert decoded(text, records).dead == []


def test_keys_that_are_objects_fill_columns_of_their_own() -> None:
    records = [sampled(b'{"id":1}', key=b'{"id":5,"region":"eu"}'), sampled(None, offset=1, key=b'{"id":6}'), sampled()]
    text = draft_text(records)
    assert "- {name: key_id, type: bigint, from: key, path: $.id}" in text
    assert "- {name: key_region, type: text, from: key, path: $.region}" in text
    assert "records without a key: 1 of 3 (33.3 %)" in text
    assert decoded(text, records).dead == []


def test_object_keys_beside_values_without_columns_are_one_json_column() -> None:
    key = settings_of(draft_text([sampled(b"text", key=b'{"id":5}')])).batch.key
    assert key is not None
    assert key.format is KeyFormat.JSON


def test_headers_are_kept_where_there_are_some_and_all_of_them_can_be() -> None:
    some = [sampled(header_names=("trace", "trace")), sampled(header_names=())]
    assert settings_of(draft_text(some)).batch.headers_column == "headers"
    assert 'headers in 1 of 2 (50.0 %): "trace"' in draft_text(some)
    assert settings_of(draft_text([sampled()])).batch.headers_column is None
    for names in (None, ("a\x00",)):
        records = [sampled(header_names=names)]
        text = draft_text(records)
        assert settings_of(text).batch.headers_column is None
        assert "headers are left out" in text
        assert decoded(text, records).dead == []


def test_tombstones_are_rows_and_those_of_change_events_are_counted() -> None:
    assert "tombstones" not in draft_text(values_of('{"a":1}'))
    assert settings_of(draft_text(values_of('{"a":1}', None))).batch.tombstones is Tombstones.ROW
    event = '{"op":"c","before":null,"after":{"a":1},"source":{},"ts_ms":1795901222852}'
    assert settings_of(draft_text(values_of(event, None))).batch.tombstones is Tombstones.COUNT


def test_change_events_have_columns_of_the_row_after_or_else_before_the_change() -> None:
    events = [
        '{"op":"c","before":null,"after":{"id":1,"name":"x"},"source":{"lsn":5},"ts_ms":1795901222852}',
        '{"op":"d","before":{"id":1,"name":null},"after":null,"source":{"lsn":6},"ts_ms":1795901222853}',
        '{"op":"t","source":{"lsn":7},"ts_ms":1795901222854}',
    ]
    for records in (values_of(*events), values_of(*(f'{{"schema":null,"payload":{event}}}' for event in events))):
        text = draft_text(records)
        below = "$" if '"payload"' not in (records[0].value or b"").decode() else "$.payload"
        assert f"{{name: id, type: bigint, path: [{below}.after.id, {below}.before.id]}}" in text
        assert f"{{name: changed_at, type: timestamptz, path: {below}.ts_ms, as: epoch_millis}}" in text
        assert "change events of Debezium" in text
        assert decoded(text, records).dead == []


EVENT = '{"op":"c","after":{"id":1},"source":{},"ts_ms":1795901222852}'


@pytest.mark.parametrize(
    "values",
    [
        [EVENT, f'{{"schema":null,"payload":{EVENT}}}'],
        [EVENT, '{"op":"c","after":1,"source":{}}'],
        [EVENT, '{"op":"x","after":{},"source":{}}'],
        [EVENT, '{"op":"c","after":{},"source":1}'],
    ],
)
def test_values_that_are_not_all_change_events_of_one_form_are_plain_objects(values: list[str]) -> None:
    records = values_of(*values)
    text = draft_text(records)
    assert "before" not in text
    assert decoded(text, records).dead == []


def test_json_is_read_as_deep_as_the_job_reads_it() -> None:
    for levels, expected in ((512, ValueFormat.JSON_COLUMNS), (513, ValueFormat.TEXT)):
        records = values_of('{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}")
        text = draft_text(records)
        assert settings_of(text).batch.value.format is expected
        assert decoded(text, records).dead == []


def test_json_with_its_schema_has_columns_below_the_payload() -> None:
    schema = {"type": "struct", "fields": [{"field": "id", "type": "int32"}]}
    records = [
        sampled(json.dumps({"schema": schema, "payload": {"id": 1}}).encode(), key=b'{"schema":null,"payload":"k"}'),
        sampled(json.dumps({"schema": schema, "payload": None}).encode(), offset=1),
    ]
    text = draft_text(records)
    assert "{name: id, type: bigint, path: $.payload.id}" in text
    assert "{name: key, type: text, from: key, path: $.payload}" in text
    assert decoded(text, records).dead == []


@pytest.mark.parametrize(
    ("name", "numbers", "expected"),
    [
        ("io.debezium.time.Date", ["-1", "20512"], ("date", "epoch_days")),
        ("io.debezium.time.MicroTimestamp", ["1"], ("timestamp without time zone", "epoch_micros")),
        ("io.debezium.time.MicroTimestamp", ["9223372036825200000"], ("numeric", None)),
        ("io.debezium.time.NanoTimestamp", ["1000"], ("timestamp without time zone", "epoch_nanos")),
        ("io.debezium.time.NanoTimestamp", ["1001"], ("bigint", None)),
        ("org.apache.kafka.connect.data.Timestamp", ["1"], ("timestamp with time zone", "epoch_millis")),
        ("io.debezium.time.Year", ["1"], ("bigint", None)),
    ],
)
def test_what_a_schema_calls_a_time_is_one(name: str, numbers: list[str], expected: tuple[str, str | None]) -> None:
    schema = {"type": "struct", "fields": [{"field": "x", "type": "int64", "name": name}]}
    records = values_of(*(f'{{"schema":{json.dumps(schema)},"payload":{{"x":{number}}}}}' for number in numbers))
    text = draft_text(records)
    [column] = settings_of(text).batch.value.columns
    assert (column.type, column.conversion) == expected
    assert f"{name} in its schema" in text
    assert decoded(text, records).dead == []


@pytest.mark.parametrize("schema", [[], {"fields": 1}, {"fields": [1, {"field": 2}, {"field": "x", "name": []}]}])
def test_a_schema_that_is_none_is_passed_over(schema: object) -> None:
    event = {"op": "c", "source": {}, "after": {"x": 1}}
    for payload in ({"x": 1}, event):
        records = values_of(json.dumps({"schema": {"type": "struct", "fields": schema}, "payload": payload}))
        assert decoded(draft_text(records), records).dead == []


@pytest.mark.parametrize("file", FILES)
def test_recorded_change_events_load_as_they_are_drafted(file: str) -> None:
    for events in recorded_events(file).values():
        records = [
            sampled(event.value, offset=offset, key=event.key, header_names=tuple(name for name, _ in event.headers))
            for offset, event in enumerate(events)
        ]
        text = draft_text(records)
        found = decoded(text, records)
        assert found.dead == []
        assert len(found.row_index) + len(found.tombstones) == len(events)


def test_the_text_does_not_depend_on_the_order_of_names_that_python_chooses() -> None:
    records = [
        sampled(b'{"a":1}', offset=0, key=b"k", header_names=("x", "y")),
        sampled(b'{"b":{"c":[1]}}', offset=1, header_names=("y",)),
    ]
    assert draft_text(records) == draft_text([replace(record) for record in records])


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "orders"),
        ("Shop.Orders-v2", "shop_orders_v2"),
        ("2026.orders", "topic_2026_orders"),
        ("...", "topic"),
        ("x" * 60, "x" * 41),
    ],
)
def test_a_pipeline_is_named_after_its_topic(topic: str, name: str) -> None:
    assert pipeline_name(topic) == name
    assert f"\npipeline: {name}\n" in draft_text([sampled()], replace(REQUEST, topic=topic))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("$.a.b", "$.a.b"),
        ("shop.orders", "shop.orders"),
        ("no", '"no"'),
        ("Null", '"Null"'),
        ("12", '"12"'),
        ("a: b", '"a: b"'),
        ('it\'s "so"\n', '"it\'s \\"so\\"\\U0000000a"'),
        ("", '""'),
    ],
)
def test_a_text_stands_in_quotes_unless_it_cannot_be_misread(text: str, written: str) -> None:
    assert scalar(text) == written


def test_names_that_a_person_gives_are_checked_like_those_of_a_file() -> None:
    with pytest.raises(ConfigError) as caught:
        draft_of_topic(replace(REQUEST, target="orders", pipeline="Orders!"), {}, lambda _: None)
    assert "correct TOPIC, --pipeline, --target" in caught.value.next_command
    assert "pipeline: expected" in caught.value.found
    assert "target.table: expected a table name with its schema" in caught.value.found


def test_the_request_names_connections_and_table() -> None:
    request = DraftRequest("orders", "kafka_x", "postgres_x", 10, "shop.o", "o_load")
    found = settings_of(draft_text([sampled(b"x")], request))
    assert (found.pipeline, str(found.batch.target)) == ("o_load", "shop.o")
    assert (found.batch.kafka_connection, found.batch.target_connection) == ("kafka_x", "postgres_x")
    assert found.batch.target.create_table


def test_records_of_impossible_times_are_told() -> None:
    records = [SampledRecord(0, 0, 253_402_300_800_000, None, b"{}"), sampled(offset=1)]
    assert "1 records have times outside the years 1 to 9999" in draft_text(records)
