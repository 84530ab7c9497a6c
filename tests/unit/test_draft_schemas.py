"""Columns that a draft makes of the schemas that records name."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kafka_ingest.errors import ConfigError, RetryLater, SchemaMissing
from kafka_ingest.kafka.registry import VALUE_SCHEMA_HEADER, RegisteredSchema
from kafka_ingest.kafka.sample import SampledRecord
from kafka_ingest.spark import samples
from kafka_ingest.spark.samples import Answer, SchemaSample, read_samples
from spark_jobs.read_sample import read_sample
from tests.avro_encoding import long, sized
from tests.debezium_samples import recorded_events
from tests.drafting import KnownSchemas, draft_text, loads, registered_draft, rows_loaded, sampled, values_of


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read samples without a process of their own, but for the tests of it."""
    monkeypatch.setattr("kafka_ingest.draft.schemas.read_samples", lambda asked: [read_sample(one) for one in asked])


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + payload


def avro(*fields: tuple[str, Any], **more: Any) -> RegisteredSchema:
    """Return an Avro schema of a record with these fields."""
    document = {"type": "record", "name": "R", "fields": [{"name": name, "type": of} for name, of in fields], **more}
    return RegisteredSchema("AVRO", json.dumps(document), {})


def proto(body: str, references: dict[str, str] | None = None) -> RegisteredSchema:
    text = (
        f'syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto"; {body}'
    )
    return RegisteredSchema("PROTOBUF", text, references or {})


def columns_in(text: str) -> list[str]:
    """Return the entries of the columns of a draft."""
    return [line.strip()[2:] for line in text.splitlines() if line.startswith("    - ")]


def column_of(schema: RegisteredSchema, payloads: Sequence[bytes], patch: pytest.MonkeyPatch) -> str:
    """Return the one column that a schema of one field gets, once the job loads the sample with it."""
    records, registry = values_of(*(framed(1, payload) for payload in payloads)), KnownSchemas({1: schema})
    text = registered_draft(records, registry)
    assert loads(text, records, registry, patch)
    [column] = columns_in(text) or [""]
    return column.removeprefix("{name: a, type: ").removesuffix("}").replace('"', "")


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def connect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.name": name, **more}


UUID_TEXT = b"6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10"
DECIMAL = logical("bytes", "decimal", precision=5, scale=2)
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "b", "type": "int"}]}
LIST = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}
#: 253402300800 is the first second of the year 10000.
YEAR_10000 = 253_402_300_800


@pytest.mark.parametrize(
    ("of", "payloads", "expected"),
    [
        ("boolean", [b"\x01"], "boolean"),
        ("int", [long(-5)], "integer"),
        ("long", [long(5)], "bigint"),
        ("float", [struct.pack("<f", 0.1)], "real"),
        ("double", [struct.pack("<d", 0.1)], "double precision"),
        ("double", [struct.pack("<d", float("nan"))], "double precision"),
        ("string", [sized(b"12")], "text"),
        ("string", [sized(b"x\x00y")], ""),
        ("bytes", [sized(b"\xff")], "bytea"),
        ("null", [b""], "jsonb"),
        (["null", "int"], [b"\x00", b"\x02\x02"], "integer"),
        (["int"], [b"\x00\x02"], "integer"),
        (["null", "int", "string"], [b"\x00", b"\x02\x02"], "jsonb"),
        ({"type": "enum", "name": "E", "symbols": ["X"]}, [b"\x00"], "text"),
        ({"type": "fixed", "name": "F", "size": 2}, [b"\xff\xff"], "bytea"),
        ({"type": "array", "items": "int"}, [b"\x00"], "jsonb"),
        ({"type": "map", "values": "int"}, [b"\x00"], "jsonb"),
        (DECIMAL, [sized(b"\x01")], "numeric(5,2)"),
        (DECIMAL, [sized(b"\x0f\x42\x40")], "numeric"),  # 10000.00 has seven digits
        (connect("bytes", "org.apache.kafka.connect.data.Decimal", **{"connect.parameters": {"scale": "2"}}),
         [sized(b"\x01")], "numeric"),
        (logical("int", "date"), [long(1)], "date"),
        (logical("int", "date"), [long(1), long(3_000_000)], "text"),
        (logical("int", "time-millis"), [long(1)], "time"),
        (logical("long", "timestamp-micros"), [long(1)], "timestamptz"),
        (logical("long", "timestamp-millis"), [long(1), long(YEAR_10000 * 1_000)], "text"),
        (logical("long", "local-timestamp-millis"), [long(1)], "timestamp"),
        (logical("long", "timestamp-nanos"), [long(1_000)], "timestamptz"),
        (logical("long", "timestamp-nanos"), [long(1_000), long(1)], "timestamptz, round: microseconds"),
        (logical("long", "local-timestamp-nanos"), [long(1)], "timestamp, round: microseconds"),
        (connect("long", "io.debezium.time.NanoTime"), [long(1)], "time, round: microseconds"),
        (connect("long", "io.debezium.time.NanoTime"), [long(86_399_999_999_999)], "text"),  # rounds to 24:00
        (connect("int", "io.debezium.time.Date"), [long(1)], "date"),
        (connect("string", "io.debezium.time.ZonedTimestamp"), [sized(b"2026-01-31T00:00:00Z")], "timestamptz"),
        (connect("string", "io.debezium.time.ZonedTimestamp"), [sized(b"infinity")], "text"),
        (logical("string", "uuid"), [sized(UUID_TEXT)], "uuid"),
        (logical("string", "uuid"), [sized(b"none")], "text"),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, [bytes(12)], "jsonb"),
        ({"type": "record", "name": "Empty", "fields": []}, [b""], "jsonb"),
    ],
)  # fmt: skip
def test_avro_types_become_columns_that_hold_their_values(
    of: Any, payloads: list[bytes], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert column_of(avro(("a", of)), payloads, monkeypatch) == expected


def key(number: int, kind: int) -> bytes:
    """Return the key of a Protobuf field."""
    return bytes([number << 3 | kind])


@pytest.mark.parametrize(
    ("body", "payload", "expected"),
    [
        ("int32 a = 1;", b"\x08\x01", "integer"),
        ("sint32 a = 1;", b"\x08\x01", "integer"),
        ("sfixed32 a = 1;", b"", "integer"),
        ("uint32 a = 1;", b"\x08\xff\xff\xff\xff\x0f", "bigint"),
        ("fixed32 a = 1;", b"", "bigint"),
        ("int64 a = 1;", b"\x08\x01", "bigint"),
        ("uint64 a = 1;", b"\x08" + b"\xff" * 9 + b"\x01", "numeric(20,0)"),
        ("fixed64 a = 1;", b"", "numeric(20,0)"),
        ("float a = 1;", key(1, 5) + struct.pack("<f", 0.1), "real"),
        ("double a = 1;", key(1, 1) + struct.pack("<d", float("inf")), "double precision"),
        ("bool a = 1;", b"", "boolean"),
        ("string a = 1;", b"\x0a\x01x", "text"),
        ("bytes a = 1;", b"\x0a\x01\xff", "bytea"),
        ("E a = 1; enum E { ZERO = 0; }", b"", "text"),
        ("E a = 1; enum E { ZERO = 0; }", b"\x08\x05", "numeric"),
        ("repeated int32 a = 1;", b"", "jsonb"),
        ("map<string, int32> a = 1;", b"", "jsonb"),
        ("google.protobuf.Timestamp a = 1;", b"\x0a\x02\x08\x01", "timestamptz"),
        ("google.protobuf.Timestamp a = 1;", b"\x0a\x02\x10\x01", "timestamptz, round: microseconds"),
        ("google.protobuf.Timestamp a = 1;", b"", "timestamptz"),
        ("google.protobuf.UInt64Value a = 1;", b"", "numeric(20,0)"),
        ("google.protobuf.StringValue a = 1;", b"\x0a\x00", "text"),
        ("oneof o { int32 a = 1; }", b"", "integer"),
        ("optional R a = 1;", b"", "jsonb"),
        ("message I { int32 b = 1; } I a = 1;", b"\x0a\x02\x08\x01", "x"),
    ],
)  # fmt: skip
def test_protobuf_types_become_columns_that_hold_their_values(
    body: str, payload: bytes, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = column_of(proto(f"message R {{ {body} }}"), [b"\x00" + payload], monkeypatch)
    assert found == (expected if expected != "x" else "{name: a_b, type: integer, path: $.a.b")


BEFORE = avro(("id", "int"), ("price", logical("bytes", "decimal", precision=5, scale=2)), ("old", "string"),
              ("at", "string"), ("ref", "string"), ("ratio", "float"))  # fmt: skip
AFTER = avro(("new", ["null", "string"]), ("id", "long"), ("price", logical("bytes", "decimal", precision=6, scale=4)),
             ("at", "long"), ("ref", INNER), ("ratio", "double"))  # fmt: skip
TWO_VERSIONS = [
    framed(7, long(1) + sized(b"\x01") + sized(b"o") + sized(b"x") + sized(b"r") + struct.pack("<f", 0.5)),
    framed(9, b"\x00" + long(2**40) + sized(b"\x01") + long(1) + long(3) + struct.pack("<d", 0.1)),
]


def test_columns_of_two_versions_hold_the_values_of_both_the_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    records, registry = values_of(*TWO_VERSIONS, TWO_VERSIONS[0]), KnownSchemas({7: BEFORE, 9: AFTER})
    text = registered_draft(records, registry)
    assert loads(text, records, registry, monkeypatch)
    assert registry.asked[:2] == [9, 7]
    # 5 - 2 = 3 digits before the point, 4 after it.
    assert columns_in(text) == [
        "{name: new, type: text}",
        "{name: id, type: bigint}",
        '{name: price, type: "numeric(7,4)"}',
        "{name: at, type: jsonb}",
        "{name: ref, type: jsonb}",
        '{name: ratio, type: "double precision"}',
        "{name: old, type: text}",
    ]
    assert "# columns come from the schemas that the values name: 7 in 2 of 3 (66.7 %), 9 in 1 of 3 (33.3 %)" in text
    assert "    # not in schema 7\n    - {name: new" in text
    assert "    # not in schema 9\n    - {name: old" in text
    assert "    # no type holds all: bigint in schema 9, text in schema 7\n    - {name: at" in text
    assert "    # a value of its own in one schema, and fields in another\n    - {name: ref" in text
    assert "  registry: schema_registry_default\n" in text
    assert registered_draft(records, registry) == text


def test_each_schema_is_asked_for_once() -> None:
    registry = KnownSchemas({1: avro(("a", "int"))})
    registered_draft(values_of(*[framed(1, long(number)) for number in range(50)]), registry)
    assert registry.asked == [1]


def test_facts_of_the_sample_stand_beside_the_types_of_the_schema() -> None:
    registry = KnownSchemas({1: avro(("a", ["null", "int"]))})
    text = registered_draft(values_of(framed(1, b"\x00"), framed(1, b"\x02\x02"), framed(1, b"\x02\x0e")), registry)
    assert "    # null in 1 of 3 (33.3 %); 1 to 7\n    - {name: a, type: integer}\n" in text


def test_records_in_records_are_flattened_and_one_that_holds_itself_is_jsonb(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = KnownSchemas({1: avro(("a", INNER)), 2: RegisteredSchema("AVRO", json.dumps(LIST), {})})
    records = values_of(framed(1, long(1)))
    assert columns_in(registered_draft(records, registry)) == ["{name: a_b, type: integer, path: $.a.b}"]
    records = values_of(framed(2, b"\x02\x02\x00"))
    text = registered_draft(records, registry)
    assert loads(text, records, registry, monkeypatch)
    assert "# it holds itself\n    - {name: a, type: jsonb}" in text


def test_a_schema_of_two_thousand_fields_keeps_the_rest_in_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = KnownSchemas({1: avro(*((f"f{number}", "int") for number in range(2_000)))})
    records = values_of(framed(1, long(1) * 2_000))
    text = registered_draft(records, registry)
    assert loads(text, records, registry, monkeypatch)
    assert len(columns_in(text)) == 200
    assert columns_in(text)[-1] == "{name: document, type: jsonb, path: $}"


def test_keys_get_columns_of_their_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = KnownSchemas({1: avro(("a", "int")), 2: avro(("region", "string"))})
    records = values_of(framed(1, long(1)), framed(1, long(2)), key=framed(2, sized(b"no")))
    text = registered_draft(records, registry)
    assert loads(text, records, registry, monkeypatch)
    assert columns_in(text) == [
        "{name: key_region, type: text, from: key, path: $.region}",
        "{name: a, type: integer}",
    ]
    assert "\nkey: {format: avro}\n" in text


def test_keys_of_a_registry_beside_json_values(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = KnownSchemas({2: avro(("region", "string"))})
    records = values_of('{"a":1}', key=framed(2, sized(b"no")))
    text = registered_draft(records, registry)
    assert loads(text, records, registry, monkeypatch)
    assert "  format: json\n" in text
    assert "\nkey: {format: avro}\n" in text


def test_keys_that_only_look_like_frames_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = KnownSchemas({1: avro(("a", "int"))})
    records = values_of(framed(1, long(1)), key=(42).to_bytes(8, "big"))
    text = registered_draft(records, registry)
    assert loads(text, records, registry, monkeypatch)
    assert "# not so in schema_registry_default: no schema 0\n" in text
    assert "\nkey: {format: raw, column: key}\n" in text


def test_an_unknown_schema_of_values_ends_the_draft() -> None:
    with pytest.raises(SchemaMissing):
        registered_draft(values_of(framed(3, b"")), KnownSchemas({}))


def test_schemas_of_several_kinds_stay_raw(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = KnownSchemas({1: avro(("a", "int")), 2: proto("message R { int32 a = 1; }")})
    records = values_of(framed(1, long(1)), framed(2, b"\x00"))
    text = registered_draft(records, registry)
    assert loads(text, records, registry, monkeypatch)
    assert "# no format reads all of their schemas: 2 is PROTOBUF, 1 is AVRO\n" in text
    assert "  format: raw\n" in text
    assert "  registry:" not in text


def test_bytes_that_are_no_record_of_their_schema_keep_the_topic_raw_and_columns_are_shown() -> None:
    registry = KnownSchemas({1: avro(("a", "int"))})
    text = registered_draft(values_of(*[framed(1, long(1))] * 19, framed(1, b"")), registry)
    assert "  format: raw\n" in text
    assert "1 of 20 (5.0 %) cannot be read with their schema, such as schema 1: " in text
    assert "write instead:\n# (and under kafka, registry: schema_registry_default)\n#   format: avro\n" in text
    text = registered_draft(values_of(*[framed(1, long(1))] * 18, framed(1, b""), framed(1, b"")), registry)
    assert "write instead" not in text


def test_a_schema_that_cannot_be_read_keeps_the_topic_raw() -> None:
    registry = KnownSchemas({1: RegisteredSchema("AVRO", '{"type": "strange"}', {})})
    text = registered_draft(values_of(framed(1, b"")), registry)
    assert "  format: raw\n" in text
    assert "strange" in text


def test_values_without_a_schema_among_others_keep_the_topic_raw() -> None:
    registry = KnownSchemas({1: avro(("a", "int"))})
    text = registered_draft(values_of(framed(1, long(1)), "plain"), registry)
    assert ("  format: raw\n" in text, registry.asked) == (True, [])


def in_header(payload: bytes, schema_id: int) -> SampledRecord:
    return sampled(payload, header_names=(VALUE_SCHEMA_HEADER,), value_schema=framed(schema_id, b""))


def test_headers_may_name_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = KnownSchemas({1: avro(("a", "string"))})
    records = [in_header(sized(b"x"), 1)]
    text = registered_draft(records, registry)
    assert loads(text, records, registry, monkeypatch)
    assert columns_in(text) == ["{name: a, type: text}"]


def test_without_a_registry_such_values_are_raw_and_the_comment_names_the_option() -> None:
    for records in ([in_header(b"text", 5)], values_of(framed(5, b"x"))):
        text = draft_text(records)
        assert "  format: raw\n" in text
        assert "# schema ids: 5 in 1 of 1 (100.0 %)\n" in text
        assert "--registry CONNECTION" in text


def test_documents_with_a_json_schema_get_the_columns_of_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer", "description": "Number of the\norder"},
              "who": {"title": "Buyer", "properties": {"name": {"title": "Name"}}}}}  # fmt: skip
    registry = KnownSchemas({1: RegisteredSchema("JSON", json.dumps(schema), {})})
    records = values_of(framed(1, b'{"id":1,"who":{"name":"a"}}'), framed(1, b'{"id":9}'))
    text = registered_draft(records, registry)
    assert loads(text, records, registry, monkeypatch)
    assert "  format: json_schema\n" in text
    assert columns_in(text) == ["{name: id, type: bigint}", "{name: who_name, type: text, path: $.who.name}"]
    assert "    # Number of the\\norder\n" in text
    assert "    # Name\n" in text
    records = values_of(framed(1, b"[1]"), framed(1, b'{"a":1}'))
    text = registered_draft(records, registry)
    assert loads(text, records, registry, monkeypatch)
    assert columns_in(text) == ["{name: payload, type: jsonb, path: $}"]


def test_two_messages_of_one_schema_share_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = KnownSchemas({1: proto("message A { int32 a = 1; } message B { string b = 1; int64 a = 2; }")})
    records = values_of(framed(1, b"\x00\x08\x01"), framed(1, b"\x02\x02\x0a\x01x"))
    text = registered_draft(records, registry)
    assert loads(text, records, registry, monkeypatch)
    assert columns_in(text) == ["{name: a, type: bigint}", "{name: b, type: text}"]
    assert "# not in schema 1, A\n" in text


def recorded_schemas() -> KnownSchemas:
    """The schemas of the change events that were recorded."""
    path = Path(__file__).parents[1] / "data" / "debezium" / "avro-schemas.json"
    listed = json.loads(path.read_text(encoding="utf-8")).items()
    texts = {int(number): of if isinstance(of, str) else json.dumps(of) for number, of in listed}
    return KnownSchemas({number: RegisteredSchema("AVRO", text, {}) for number, text in texts.items()})


@pytest.mark.parametrize("topic", ["alltypes", "items", "pairs"])
def test_change_events_that_java_wrote_get_the_columns_of_their_rows(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = recorded_events("avro-confluent-framing")[f"g.inventory.{topic}"]
    records = [sampled(event.value, key=event.key, offset=offset) for offset, event in enumerate(events)]
    registry = recorded_schemas()
    text = registered_draft(records, registry)
    tombstones = sum(event.value is None for event in events)
    assert rows_loaded(text, records, registry, monkeypatch) == len(events) - tombstones
    assert "{name: changed_at, type: timestamptz, path: $.ts_ms, as: epoch_millis}" in columns_in(text)
    assert "{name: source, type: jsonb}" in columns_in(text)
    assert not [column for column in columns_in(text) if "name: before" in column]
    if topic == "items":
        assert "{name: uid, type: uuid, path: [$.after.uid, $.before.uid]}" in columns_in(text)
        assert '{name: price, type: "numeric(12,3)", path: [$.after.price, $.before.price]}' in columns_in(text)


ASKED = [SchemaSample("AVRO", avro(("a", "bytes")).text, {}, [sized(b"\xff\x00"), b"\x80"])]


def test_a_process_of_its_own_reads_as_this_one() -> None:
    [found] = read_samples(ASKED)
    assert [of.documents for of in found.types] == [['{"a":"/wA="}']]
    assert (found, found.faulty) == (read_sample(ASKED[0]), 1)


def test_a_process_that_ends_without_an_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "_MODULE", "spark_jobs.no_such_module")
    with pytest.raises(RetryLater, match="no_such_module"):
        read_samples(ASKED)


def test_a_package_that_is_missing_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = msgspec.json.encode(Answer(missing="No module named 'grpc_tools'"))
    monkeypatch.setattr(samples, "_ended", lambda _: subprocess.CompletedProcess([], 0, answer, b""))
    with pytest.raises(ConfigError, match="grpc_tools"):
        read_samples(ASKED)


def test_the_process_that_reads_a_sample_gets_nothing_of_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", "secret")
    given: list[Mapping[str, str]] = []

    def run(*_: object, env: Mapping[str, str], **__: object) -> subprocess.CompletedProcess[bytes]:
        given.append(env)
        return subprocess.CompletedProcess([], 0, msgspec.json.encode(Answer()), b"")

    monkeypatch.setattr(subprocess, "run", run)
    read_samples([])
    assert "secret" not in given[0].values()
