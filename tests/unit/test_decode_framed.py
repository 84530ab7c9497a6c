"""Values that name their schema: which one, by whose word, and what becomes of those that name none."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason, SchemaMissing
from kafka_ingest.kafka.registry import SCHEMA_KINDS, VALUE_SCHEMA_HEADER, RegisteredSchema, UnusableSchema
from kafka_ingest.protocol.staging import NewField
from kafka_ingest.settings import ColumnSettings, NewFields, ValueFormat, ValueSettings
from spark_jobs.decode import record
from spark_jobs.decode.avro import AvroSchema
from spark_jobs.decode.framed import FramedColumns, Schema, Schemas
from spark_jobs.decode.json import JsonColumns
from spark_jobs.decode.record_bytes import FEWEST_RECORDS
from spark_jobs.decode.values import NAN_NUMBER, ColumnPlan, DecodedPart, DecodeError, QuickColumn
from spark_jobs.records import RECORD_SCHEMA
from tests.builders import batch_settings
from tests.decoding import BATCH_ID, batch_of, target_of
from tests.decoding import record as a_record

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")
JSON = RegisteredSchema("JSON", "{}", {})


class FakeRegistry:
    """Knows schemas by number or GUID, and counts how often it is asked."""

    def __init__(self, schemas: Mapping[int | str, RegisteredSchema], subjects: Mapping[int | str, str] | None = None):
        self._schemas = schemas
        self._subjects = subjects or {}
        self.asked: list[int | str] = []

    def schema(self, schema_id: int | str) -> RegisteredSchema:
        self.asked.append(schema_id)
        if schema_id not in self._schemas:
            raise SchemaMissing("unknown")
        return self._schemas[schema_id]

    def is_registered(self, schema_id: int | str, subject: str) -> bool:
        return self._subjects.get(schema_id) == subject


def number_frame(schema_id: int) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big")


def plan(name: str, type_name: str, *, required: bool = False) -> ColumnPlan:
    return ColumnPlan(name, parse_column_type(type_name), (name,), required=required)


A = plan("a", "bigint")


def schemas_in(registry: FakeRegistry, *, kind: str = "JSON", subject: str | None = None) -> Schemas:
    return Schemas(registry, kind, subject, record.opened_schema)  # type: ignore[arg-type]


def decode(
    values: Sequence[bytes | None],
    schemas: Schemas | None = None,
    *,
    plans: Sequence[ColumnPlan] = (A,),
    headers: Sequence[list[tuple[str, bytes | None]] | None] | None = None,
) -> DecodedPart:
    schemas = schemas or schemas_in(FakeRegistry({1: JSON, 2: JSON, str(GUID): JSON}))
    documents = JsonColumns(plans, of_binary=True)
    columns = FramedColumns(plans, documents.decode, schemas, VALUE_SCHEMA_HEADER)
    lists = headers or [None] * len(values)
    pairs = [None if of is None else [{"name": name, "value": value} for name, value in of] for of in lists]
    return columns.decode(pa.array(values, pa.large_binary()), pa.array(pairs, RECORD_SCHEMA.field("headers").type))


def column(part: DecodedPart, place: int = 0) -> list[object]:
    return [None if row in part.decode_errors else value for row, value in enumerate(part.arrays[place].to_pylist())]


def test_a_value_is_what_follows_the_schemas_number() -> None:
    part = decode([number_frame(1) + b'{"a": 7}', None, number_frame(2) + b'{"a": 8}'])
    assert (column(part), part.decode_errors) == ([7, None, 8], {})


def test_a_guid_names_a_schema_as_well_as_a_number() -> None:
    assert column(decode([b"\x01" + GUID.bytes + b'{"a": 7}'])) == [7]


def test_a_header_names_the_schema_of_the_whole_value() -> None:
    guid, number = b"\x01" + GUID.bytes, number_frame(2)
    values = [b'{"a": 7}', number_frame(1) + b'{"a": 8}', b'{"a": 9}']
    headers: list[list[tuple[str, bytes | None]] | None] = [
        [("other", b"x"), (VALUE_SCHEMA_HEADER, guid), (VALUE_SCHEMA_HEADER, number_frame(9))],
        [("other", None)],
        [(VALUE_SCHEMA_HEADER, number)],
    ]
    assert column(decode(values, headers=headers)) == [7, 8, 9]


def test_a_header_of_that_name_without_a_value_names_nothing() -> None:
    assert column(decode([number_frame(1) + b'{"a": 7}'], headers=[[(VALUE_SCHEMA_HEADER, None)]])) == [7]


@pytest.mark.parametrize(
    "value", [b"", b"\x00", b"\x00\x00\x00\x01", b"\x02\x00\x00\x00\x01{}", b"\x01" + GUID.bytes[:15], b'{"a": 7}']
)
def test_bytes_that_name_no_schema_are_a_dead_letter_and_their_neighbours_rows(value: bytes) -> None:
    good = number_frame(1) + b'{"a": 7}'
    part = decode([good, value, good])
    assert column(part) == [7, None, 7]
    assert part.decode_errors[1].reason is DeadLetterReason.MALFORMED
    assert "expected a value that begins with its schema" in part.decode_errors[1].detail


def test_plain_json_is_recognised_in_the_detail() -> None:
    assert "looks like JSON without a frame" in decode([b'{"a": 7}']).decode_errors[0].detail


def test_each_schema_is_asked_for_once_and_batches_share_them() -> None:
    registry = FakeRegistry({1: JSON, 2: JSON})
    schemas = schemas_in(registry)
    for _ in range(3):
        decode([number_frame(1) + b"{}", number_frame(2) + b"{}", number_frame(1) + b"{}"], schemas)
    assert registry.asked == [1, 2]


def test_an_unknown_number_stops_the_batch_and_makes_no_dead_letter() -> None:
    with pytest.raises(SchemaMissing):
        decode([number_frame(1) + b"{}", number_frame(3) + b"{}"])


def test_an_unknown_number_is_asked_for_again() -> None:
    registry = FakeRegistry({})
    schemas = schemas_in(registry)
    for _ in range(2):
        with pytest.raises(SchemaMissing):
            decode([number_frame(3) + b"{}"], schemas)
    assert registry.asked == [3, 3]


def test_a_schema_of_another_subject_makes_dead_letters() -> None:
    registry = FakeRegistry({1: JSON, 2: JSON}, {1: "orders-value", 2: "orders-key"})
    part = decode(
        [number_frame(1) + b'{"a": 7}', number_frame(2) + b'{"a": 8}'], schemas_in(registry, subject="orders-value")
    )
    assert column(part) == [7, None]
    assert part.decode_errors[1].detail == (
        "the value: expected a schema of the subject orders-value, found schema 2, which is none of it"
    )


def test_a_schema_of_another_kind_makes_dead_letters() -> None:
    registry = FakeRegistry({1: RegisteredSchema("AVRO", '"string"', {})})
    part = decode([number_frame(1) + b"{}"], schemas_in(registry))
    assert (
        part.decode_errors[0].detail == "the value: expected a schema of the kind JSON, found schema 1 of the kind AVRO"
    )


def test_a_schema_that_cannot_be_read_makes_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Schema:
        raise UnusableSchema("no such type")

    monkeypatch.setattr(record, "opened_schema", refuse)
    [error] = decode([number_frame(1) + b"{}"]).decode_errors.values()
    assert error.detail == "the value: expected a schema that can be read, found schema 1: no such type"


def read_documents(payloads: Sequence[bytes]) -> Sequence[bytes | DecodeError]:
    """Ten times the first byte of a payload; those above 200 are refused."""
    refused = DecodeError(DeadLetterReason.MALFORMED, "expected less, found more")
    return [b'{"a": %d}' % (payload[0] * 10) if payload[0] <= 200 else refused for payload in payloads]


def read_columns(payloads: pa.Array, _plans: Sequence[ColumnPlan]) -> Sequence[QuickColumn]:
    """The first byte of a payload as a whole column; those above 100 are in doubt."""
    cells = [payload[0] or None for payload in payloads.to_pylist()]
    return [QuickColumn(pa.array(cells, pa.int64()), [at for at, cell in enumerate(cells) if cell and cell > 100])]


def of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = Schema(read_documents, read_columns)
    monkeypatch.setattr(record, "opened_schema", lambda _, found: columns if found.text else Schema())


REGISTRY: Mapping[int | str, RegisteredSchema] = {
    1: RegisteredSchema("JSON", "columns", {}),
    2: RegisteredSchema("JSON", "", {}),
}


def test_whole_columns_documents_and_dead_letters_of_a_batch_keep_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    of_columns(monkeypatch)
    payloads = [b"\x01\x07", b"\x02" + b'{"a": 20}', b"\x01\x79", b"\x01\xc9", b"\x02x", b"\x01\x08", b"\x01\x00"]
    values = [b"\x00\x00\x00\x00" + payload for payload in payloads]
    part = decode([values[0], None, *values[1:]], schemas_in(FakeRegistry(REGISTRY)))
    assert column(part) == [7, None, 20, 1210, None, None, 8, None]
    assert sorted(part.decode_errors) == [4, 5]


def test_whole_columns_alone_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    of_columns(monkeypatch)
    part = decode([number_frame(1) + bytes([cell]) for cell in (3, 0, 5)], schemas_in(FakeRegistry(REGISTRY)))
    assert (column(part), part.decode_errors) == ([3, None, 5], {})


@pytest.mark.parametrize("changes", [{"required": True}, {"default": "7"}], ids=["required", "with a default"])
def test_null_in_a_whole_column_that_means_more_than_null_is_read_again_as_a_document(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    of_columns(monkeypatch)
    schemas = schemas_in(FakeRegistry(REGISTRY))
    part = decode([number_frame(1) + b"\x03", number_frame(1) + b"\x00"], schemas, plans=[replace(A, **changes)])
    assert column(part) == [3, 0]


def test_new_fields_are_watched_in_documents_whatever_whole_columns_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    of_columns(monkeypatch)
    monkeypatch.setattr(record, "schemas_of", lambda *_: schemas_in(FakeRegistry(REGISTRY)))
    value = ValueSettings(ValueFormat.AVRO, (ColumnSettings("b", "bigint", ("b",)),), new_fields=NewFields.WARN)
    settings = replace(batch_settings(), value=value)
    decoder = record.RecordDecoder(settings, target_of(settings), batch_id=BATCH_ID)
    decoder.decode(batch_of({**a_record(), "value": number_frame(1) + b"\x03"}), generation=0)
    assert decoder.new_fields == (NewField(("a",), "jsonb"),)


AVRO = RegisteredSchema(
    "AVRO",
    """{"type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "place", "type": ["null", {"type": "record", "name": "Place", "fields": [
            {"name": "zip", "type": "long"}, {"name": "city", "type": ["null", "long"]}]}]}
    ]}""",
    {},
)
#: 7, then no place; a place with the zip 1 and no city, or with the city 2.
WITHOUT_PLACE, WITHOUT_CITY, WITH_CITY = (
    number_frame(1) + end for end in (b"\x0e\x00", b"\x0e\x02\x02\x00", b"\x0e\x02\x02\x02\x04")
)


def avro_decoder(monkeypatch: pytest.MonkeyPatch, *columns: ColumnSettings, policy: NewFields) -> record.RecordDecoder:
    monkeypatch.setattr(record, "schemas_of", lambda *_: schemas_in(FakeRegistry({1: AVRO}), kind="AVRO"))
    settings = replace(batch_settings(), value=ValueSettings(ValueFormat.AVRO, columns, new_fields=policy))
    return record.RecordDecoder(settings, target_of(settings), batch_id=BATCH_ID)


def avro_rows(
    monkeypatch: pytest.MonkeyPatch, *columns: ColumnSettings, policy: NewFields
) -> tuple[list[object], list[str]]:
    """Return the columns of three Avro records, and what is said of their fields."""
    decoder = avro_decoder(monkeypatch, *columns, policy=policy)
    records = [{**a_record(), "value": value} for value in (WITHOUT_PLACE, WITHOUT_CITY, WITH_CITY)]
    decoded = decoder.decode(batch_of(*records), generation=0)
    rows = decoded.columns.select([column.name for column in columns]).to_pylist()
    said = [dead.detail.rpartition(" ")[2] for dead in decoded.dead] or [field.path[-1] for field in decoder.new_fields]
    return [tuple(row.values()) for row in rows], said


def test_new_fields_of_avro_are_those_of_the_writers_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    id_, city = ColumnSettings("id", "bigint", ("id",)), ColumnSettings("city", "bigint", ("place", "city"))
    rows = [(7, None), (7, None), (7, 2)]
    assert avro_rows(monkeypatch, id_, city, policy=NewFields.IGNORE) == (rows, [])
    assert avro_rows(monkeypatch, id_, city, policy=NewFields.WARN) == (rows, ["zip"])
    assert avro_rows(monkeypatch, id_, city, policy=NewFields.DEAD_LETTER) == (rows[:1], ["$.place.zip"] * 2)
    assert avro_rows(monkeypatch, id_, policy=NewFields.WARN)[1] == ["place"]


def test_documents_of_avro_are_looked_at_until_every_field_of_the_schema_is_read_or_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[int] = []
    documents = AvroSchema.documents

    def counted(self: AvroSchema, payloads: Sequence[bytes]) -> list[bytes | DecodeError]:
        looked_at.append(len(payloads))
        return documents(self, payloads)

    monkeypatch.setattr(AvroSchema, "documents", counted)
    city = ColumnSettings("city", "bigint", ("place", "city"))
    decoder = avro_decoder(monkeypatch, city, policy=NewFields.WARN)
    many = [{**a_record(), "value": value} for value in (WITHOUT_PLACE, WITH_CITY)] * FEWEST_RECORDS
    for _ in range(3):
        decoded = decoder.decode(batch_of(*many), generation=0)
        assert decoded.columns.column("city").to_pylist() == [None, 2] * FEWEST_RECORDS
    assert [".".join(field.path) for field in decoder.new_fields] == ["id", "place.zip"]
    assert looked_at == [2 * FEWEST_RECORDS, 0, 0]


# The types of new fields.


def avro_of(**fields: Any) -> RegisteredSchema:
    """Return a schema of a record with an id and these fields."""
    members = [{"name": name, "type": of} for name, of in {"id": "long", **fields}.items()]
    return RegisteredSchema("AVRO", json.dumps({"type": "record", "name": "R", "fields": members}), {})


def adding_decoder(
    monkeypatch: pytest.MonkeyPatch, format_: ValueFormat, *registered: RegisteredSchema
) -> record.RecordDecoder:
    """Return a decoder of a column for the id, whose pipeline adds columns for what it does not read."""
    numbered: dict[int | str, RegisteredSchema] = dict(enumerate(registered, 1))
    schemas = schemas_in(FakeRegistry(numbered), kind=SCHEMA_KINDS[format_])
    monkeypatch.setattr(record, "schemas_of", lambda *_: schemas)
    id_ = ColumnSettings("id", "bigint", ("id",))
    settings = replace(batch_settings(), value=ValueSettings(format_, (id_,), new_fields=NewFields.ADD_COLUMN))
    return record.RecordDecoder(settings, target_of(settings), batch_id=BATCH_ID)


def types_found(decoder: record.RecordDecoder, *batches: Sequence[bytes]) -> dict[str, list[str]]:
    """Decode batches of values, and return the types of each field that is reported."""
    for values in batches:
        decoder.decode(batch_of(*({**a_record(), "value": value} for value in values)), generation=0)
    found: dict[str, list[str]] = {}
    for new in decoder.new_fields:
        found.setdefault(".".join(new.path), []).append(new.type)
    return {path: sorted(types) for path, types in found.items()}


#: The field n as an int, as a long and as a text, each with the id 7.
EVOLVING = (avro_of(n="int"), avro_of(n="long"), avro_of(n="string"))
AS_INT, AS_LONG, AS_TEXT = number_frame(1) + b"\x0e\x02", number_frame(2) + b"\x0e\x02", number_frame(3) + b"\x0e\x02x"


def evolving(monkeypatch: pytest.MonkeyPatch) -> record.RecordDecoder:
    return adding_decoder(monkeypatch, ValueFormat.AVRO, *EVOLVING)


def test_a_new_field_has_the_type_of_every_schema_in_which_it_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    assert types_found(evolving(monkeypatch), [AS_INT]) == {"n": ["integer"]}
    assert types_found(evolving(monkeypatch), [AS_LONG, AS_INT, AS_LONG]) == {"n": ["bigint", "integer"]}


@pytest.mark.parametrize("count", [1, FEWEST_RECORDS], ids=["as documents", "by whole columns"])
def test_the_types_of_a_new_field_do_not_depend_on_how_records_are_cut(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    kinds = [[AS_INT] * count, [AS_LONG] * count, [AS_TEXT] * count]
    together = [[value for values in zip(*kinds, strict=True) for value in values]]
    for batches in (together, *permutations(kinds), [*kinds, *kinds]):
        assert types_found(evolving(monkeypatch), *batches) == {"n": ["bigint", "integer", "text"]}


def test_a_dead_letter_says_nothing_of_the_type_of_a_new_field(monkeypatch: pytest.MonkeyPatch) -> None:
    assert types_found(evolving(monkeypatch), [AS_INT, AS_TEXT[:-1], AS_LONG + b"x"]) == {"n": ["integer"]}


def test_a_new_object_is_one_field_and_what_columns_lead_through_has_types_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = {
        "type": "record",
        "name": "Place",
        "fields": [{"name": "zip", "type": "int"}, {"name": "id", "type": "long"}],
    }
    decoder = adding_decoder(monkeypatch, ValueFormat.AVRO, avro_of(place=place))
    assert types_found(decoder, [number_frame(1) + b"\x0e\x02\x04"]) == {"place": ["jsonb"]}
    through = avro_decoder(monkeypatch, ColumnSettings("id", "bigint", ("place", "id")), policy=NewFields.ADD_COLUMN)
    assert types_found(through, [WITH_CITY]) == {"id": ["bigint"], "place.zip": ["bigint"], "place.city": ["bigint"]}


def test_new_fields_of_protobuf_have_the_types_of_the_message_that_a_record_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (
        'syntax = "proto3"; message A { int64 id = 1; optional int32 n = 2; } message B { int64 id = 1; string n = 2; }'
    )
    schema = RegisteredSchema("PROTOBUF", text, {})
    of_a, unset, of_b = (number_frame(1) + end for end in (b"\x00\x10\x05", b"\x00", b"\x02\x02"))
    for batches in ([[of_a], [of_b]], [[of_b], [of_a]], [[of_b, unset, of_a]]):
        decoder = adding_decoder(monkeypatch, ValueFormat.PROTOBUF, schema)
        assert types_found(decoder, *batches) == {"n": ["integer", "text"]}
    assert types_found(adding_decoder(monkeypatch, ValueFormat.PROTOBUF, schema), [unset]) == {}


def test_a_json_schema_promises_no_types(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"type": "object", "properties": {"n": {"type": "integer"}}}'
    decoder = adding_decoder(monkeypatch, ValueFormat.JSON_SCHEMA, RegisteredSchema("JSON", text, {}))
    assert types_found(decoder, [number_frame(1) + b'{"id": 7, "n": 1}']) == {"n": ["jsonb"]}


@pytest.mark.parametrize("policy", [NewFields.IGNORE, NewFields.WARN])
def test_a_default_in_avro_is_for_what_the_schema_or_the_record_does_not_have(
    monkeypatch: pytest.MonkeyPatch, policy: NewFields
) -> None:
    city = ColumnSettings("city", "bigint", ("place", "city"), default="5")
    gone = ColumnSettings("gone", "text", ("gone",), default='"-"')
    assert avro_rows(monkeypatch, city, gone, policy=policy)[0] == [(5, "-"), (None, "-"), (2, "-")]


def test_nan_is_a_float_and_for_other_types_a_dead_letter_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    special = Schema(lambda payloads: [b'{"a": %s, "b": 1}' % NAN_NUMBER for _ in payloads])
    monkeypatch.setattr(record, "opened_schema", lambda *_: special)
    [[value]] = [column(decode([number_frame(1)], plans=[plan("a", type_name)])) for type_name in ("double precision",)]
    assert isinstance(value, float)
    assert math.isnan(value)
    for type_name in ("bigint", "numeric", "jsonb"):
        [error] = decode([number_frame(1)], plans=[plan("a", type_name)]).decode_errors.values()
        assert (error.reason, "NaN" in error.detail) == (DeadLetterReason.OUT_OF_RANGE, True), error.detail


def test_in_json_itself_the_number_that_stands_for_nan_is_out_of_range() -> None:
    part = JsonColumns([plan("a", "double precision")]).decode(pa.array([b'{"a": %s}' % NAN_NUMBER], pa.large_binary()))
    assert [error.reason for error in part.decode_errors.values()] == [DeadLetterReason.OUT_OF_RANGE]
