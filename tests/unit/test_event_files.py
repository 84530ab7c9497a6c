"""Pipeline files of change events: what their keys become, what they refuse, and what the first plan binds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_ingest.errors import ConfigError
from kafka_ingest.pipeline_files.files import check_content
from kafka_ingest.postgres.rows import settings_from_json, settings_hash, settings_to_json
from kafka_ingest.protocol.ledger_view import PlanView, require_bound_settings
from kafka_ingest.settings import (
    BatchSettings,
    ColumnSettings,
    Deletes,
    Envelope,
    EnvelopeSettings,
    OrderBy,
    Truncate,
    UpsertSettings,
)
from tests.builders import pipeline_settings, view_of
from tests.change_events import became, decode_events, events_settings, target_section
from tests.debezium_samples import recorded_events
from tests.pipeline_texts import faults_of, pipeline_text

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "inventory.yaml"
EVENTS = "{format: json, envelope: debezium, columns: [{name: id, type: bigint, from: key}]}"
STATE = target_section("truncate: stop, deletes: remove")


def test_columns_begin_at_the_row_after_the_change_or_where_from_says() -> None:
    settings = events_settings(
        "{name: a, type: text}",
        "{name: b, type: text, path: [$.b, $.c.d]}",
        "{name: old, type: text, from: before, path: $.a}",
        "{name: lsn, type: bigint, from: source}",
        "{name: op, type: text, from: envelope}",
        "{name: trace, type: text, from: header, header: trace, occurrence: last}",
    )
    columns = {column.name: column for column in settings.value.columns}
    assert columns["id"] == ColumnSettings("id", "bigint", ("id",), required=True, from_key=True)
    assert columns["a"].path == ("after", "a")
    assert (columns["b"].path, columns["b"].other_paths) == (("after", "b"), (("after", "c", "d"),))
    assert (columns["old"].path, columns["lsn"].path) == (("before", "a"), ("source", "lsn"))
    assert (columns["op"].path, columns["trace"].path) == (("op",), ())


def test_beside_their_schema_value_and_key_begin_below_payload() -> None:
    settings = events_settings("{name: a, type: text}", value="envelope: debezium, with_schema: [value, key]")
    assert [column.path for column in settings.value.columns] == [("payload", "id"), ("payload", "after", "a")]
    assert settings.upsert is not None
    assert settings.upsert.envelope == EnvelopeSettings(
        Envelope.DEBEZIUM, Truncate.IGNORE, "__debezium_unavailable_value", ("payload",)
    )


def test_the_settings_of_events_come_back_from_the_ledger() -> None:
    settings = events_settings("{name: a, type: text}", value="envelope: debezium, unavailable_placeholder: gone")
    assert settings_from_json(settings_to_json(settings)) == settings
    assert settings.upsert is not None
    other = replace(settings, upsert=replace(settings.upsert, envelope=None))
    assert settings_hash(other) != settings_hash(settings)
    assert '"envelope"' not in settings_to_json(other)


@pytest.mark.parametrize(
    ("value", "target", "faults"),
    [
        (EVENTS, "{table: shop.orders}", ["6: target.mode: expected upsert with value.envelope"]),
        (EVENTS, STATE.replace("order: offset", "order: record_time"), ["6: target.order: expected offset with"]),
        (EVENTS, STATE.replace("truncate: stop, ", ""), ["6: target.truncate: expected stop or ignore"]),
        (EVENTS, target_section("truncate: stop, deletes: remove, delete_when: {path: $.op, equals: d}"),
         ["6: target.delete_when: expected nothing beside value.envelope"]),
        ("{format: json, envelope: debezium, column: payload}", STATE.replace("[id]", "[payload]"),
         ["5: value.envelope: expected value.columns beside it", "6: target.key[0]: expected a column that can be a k",
          "6: target.key: expected columns from the record's"]),
        (EVENTS.replace("columns:", "new_fields: warn, columns:"), STATE, ["5: value.new_fields: expected ignore"]),
        (EVENTS.replace("columns:", "with_schema: [key, key], columns:"), STATE,
         ["5: value.with_schema: expected each of value and key once"]),
        (EVENTS.replace("columns:", 'unavailable_placeholder: "é", columns:'), STATE,
         ["5: value.unavailable_placeholder: expected a text of printable ASCII characters"]),
        (EVENTS.replace("envelope: debezium, ", "with_schema: [value], "), STATE.replace("truncate: stop, ", ""),
         ["5: value.columns: expected a column from the value", "5: value.with_schema: expected only with value.env"]),
        ("{format: json, columns: [{name: id, type: bigint}, {name: b, type: text, from: before}]}", "{table: a.b}",
         ["5: value.columns[1].from: expected value, key or header, or value.envelope beside it; found before"]),
        ("{format: json, unavailable: write_null, columns: [{name: id, type: bigint}]}", "{table: a.b}",
         ["5: value.unavailable: expected only with value.envelope"]),
        ("{format: json, columns: [{name: id, type: bigint}]}", "{table: a.b, truncate: stop}",
         ["6: target.truncate: expected only with value.envelope"]),
        (EVENTS.replace("]}", ", {name: s, type: text, from: envelope, path: $.source}, "
                        "{name: lsn, type: bigint, from: source}]}"), STATE,
         ["5: value.columns[1].type: expected jsonb for an object"]),
    ],
)  # fmt: skip
def test_a_file_of_events_names_its_faults(tmp_path: Path, value: str, target: str, faults: list[str]) -> None:
    found = faults_of(tmp_path / "pipeline.yaml", pipeline_text(value=value, target=target))
    assert len(found) == len(faults), found
    assert all(line.startswith(fault) for line, fault in zip(found, faults, strict=True)), found


def test_schemas_beside_avro_are_refused() -> None:
    with pytest.raises(ConfigError, match="values of the format json; the format avro has its schemas in the registry"):
        events_settings(
            value="format: avro, envelope: debezium, with_schema: [value]",
            kafka="{topics: [orders], registry: schema_registry_default}",
        )


def test_the_example_file_reads_the_events_of_a_connector_that_is_set_up_as_it_says() -> None:
    settings = check_content(EXAMPLE.read_bytes(), EXAMPLE).batch
    decoded = decode_events(settings, *recorded_events("json-plain-connect-string")["c.inventory.items"])
    assert became(decoded) == ["row", "row"]
    day, made = "2026-02-28", "2026-11-28T10:34:56.123456Z"
    columns = decoded.columns.select(["id", "name", "price", "made_at", "made_on", "photo", "tags"]).to_pylist()
    assert [tuple(row.values()) for row in columns] == [
        (1, 'naïve "q" \\ \U0001f600 \n', "1234.500", made, day, b"\x00\xff\x10", r'{"a",NULL,"b,\"c"}'),
        (2, "second", "99.990", made, day, b"\x00\xff\x10", r'{"a",NULL,"b,\"c"}'),
    ]


def bound(envelope: EnvelopeSettings | None) -> tuple[PlanView, UpsertSettings]:
    upsert = UpsertSettings(("id",), OrderBy.OFFSET, Deletes.REMOVE, envelope=envelope)
    view = view_of()
    assert view.pipeline is not None
    return replace(view, pipeline=replace(view.pipeline, upsert=upsert)), upsert


def plan_with(settings: BatchSettings, view: PlanView, upsert: UpsertSettings) -> None:
    require_bound_settings(view, pipeline_settings(batch=replace(settings, upsert=upsert)))


def test_the_first_plan_binds_the_envelope_which_decides_what_a_delete_is() -> None:
    view, upsert = bound(EnvelopeSettings(Envelope.DEBEZIUM, Truncate.STOP))
    with pytest.raises(ConfigError) as caught:
        plan_with(events_settings(), view, replace(upsert, envelope=None))
    assert (caught.value.expected, caught.value.found) == ("value.envelope: debezium", "value.envelope: nothing")


def test_what_a_truncation_does_is_not_bound_for_it_is_changed_when_one_was_met() -> None:
    view, upsert = bound(EnvelopeSettings(Envelope.DEBEZIUM, Truncate.STOP))
    changed = EnvelopeSettings(Envelope.DEBEZIUM, Truncate.IGNORE, "another", ("payload",))
    plan_with(events_settings(), view, replace(upsert, envelope=changed))
