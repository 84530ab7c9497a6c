"""Whatever schemas are drawn, the column of a new field holds its values, and its types do not depend on the cut."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_ingest.kafka.registry import SCHEMA_KINDS, RegisteredSchema
from kafka_ingest.protocol.staging import NewField
from kafka_ingest.settings import BatchSettings, ColumnSettings, NewFields, ValueFormat, ValueSettings
from spark_jobs.decode import avro_columns
from spark_jobs.decode import record as record_decoder
from spark_jobs.decode.framed import Schemas
from tests.builders import batch_settings
from tests.decoding import BATCH_ID, batch_of, reasons, record, target_of
from tests.drafting import KnownSchemas
from tests.drawn_avro import (
    PLAIN,
    RECORDS,
    TYPES,
    Drawn,
    decimals,
    durations,
    enums,
    fixeds,
    nullable,
    uuids_of_bytes,
    written,
)
from tests.drawn_protobuf import TYPES as TYPES_OF_PROTOBUF
from tests.drawn_protobuf import Field, Schema, Writer
from tests.protobuf_messages import message_class

LARGE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
PROTOBUF_TYPES = [name for name in TYPES_OF_PROTOBUF if name != "Outer"]  # a message of required ones has no end
INNER = [Field("optional", "uint64", "", "b", 1), Field("optional", "google.protobuf.Timestamp", "", "c", 2)]
#: Columns that lead through objects, whose other members are new fields, too.
THROUGH = (("a", "-"), ("a", "b", "-"), ("b", "-"), ("ä", "-"))


class Loading:
    """Decodes records of schemas.

    Args:
        value_format: Their format.
        schemas: Their schemas, by number.
    """

    def __init__(self, value_format: ValueFormat, schemas: Mapping[int | str, RegisteredSchema]) -> None:
        self._format = value_format
        self._schemas = Schemas(KnownSchemas(schemas), SCHEMA_KINDS[value_format], None, record_decoder.opened_schema)  # type: ignore[arg-type]

    def new_fields(self, batches: Sequence[Sequence[bytes]], paths: Sequence[tuple[str, ...]]) -> set[NewField]:
        """Return what is reported where columns read these paths."""
        columns = [ColumnSettings(f"c{number}", "jsonb", path) for number, path in enumerate(paths)]
        decoder = self._decoder(self._settings(columns))
        for values in batches:
            decoder.decode(batch_of(*map(record, values)), generation=0)
        return set(decoder.new_fields)

    def dead(self, values: Sequence[bytes], path: tuple[str, ...], type_: str) -> set[int]:
        """Return which records are dead letters where one column reads them."""
        settings = self._settings([ColumnSettings("c", type_, path)])
        return set(reasons(self._decoder(settings).decode(batch_of(*map(record, values)), generation=0)))

    def _settings(self, columns: Sequence[ColumnSettings]) -> BatchSettings:
        value = ValueSettings(self._format, tuple(columns), new_fields=NewFields.ADD_COLUMN)
        return replace(batch_settings(), value=value)

    def _decoder(self, settings: BatchSettings) -> record_decoder.RecordDecoder:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(record_decoder, "schemas_of", lambda *_: self._schemas)
            return record_decoder.RecordDecoder(settings, target_of(settings), batch_id=BATCH_ID)


@contextmanager
def whole_columns_of_any_number() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro_columns, "FEWEST_RECORDS", 1)
        yield


def framed(number: int, payload: bytes) -> bytes:
    return b"\x00" + number.to_bytes(4, "big") + payload


@st.composite
def avro_records(draw: st.DrawFn) -> tuple[dict[int | str, RegisteredSchema], list[bytes]]:
    drawn = dict(enumerate([draw(RECORDS) for _ in range(draw(st.integers(1, 3)))], 1))
    schemas: dict[int | str, RegisteredSchema] = {
        number: RegisteredSchema("AVRO", json.dumps(of.schema), {}) for number, of in drawn.items()
    }
    values = [
        framed(number, written(of.schema, value))
        for number, of in drawn.items()
        for value, _ in draw(st.lists(of.pairs, min_size=1, max_size=3))
    ]
    return schemas, draw(st.permutations(values))


def is_held(loading: Loading, values: Sequence[bytes], found: set[NewField]) -> None:
    """Check that the one type of each field refuses no record but those that no column of JSON takes, such as NaN."""
    for path in {new.path for new in found}:
        [type_] = [new.type for new in found if new.path == path]
        assert loading.dead(values, path, type_) <= loading.dead(values, path, "jsonb"), (path, type_)


#: Each kind of types by itself: drawn together, most of them would hardly come up.
AVRO_TYPES = {
    **{f"{number}: {of.schema}": st.just(of) for number, of in enumerate(PLAIN)},
    "decimal": decimals(),
    "enum": enums(),
    "fixed": fixeds(),
    "uuid of bytes": st.builds(uuids_of_bytes),
    "duration": st.builds(durations),
    "any": TYPES,
}


@pytest.mark.parametrize("of", AVRO_TYPES.values(), ids=AVRO_TYPES.keys())
@settings(max_examples=10, suppress_health_check=LARGE)
@given(st.data())
def test_the_column_of_a_new_avro_field_holds_every_value_of_its_schema(
    of: st.SearchStrategy[Drawn], data: st.DataObject
) -> None:
    drawn = data.draw(of | nullable(of))
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": drawn.schema}]}
    pairs = data.draw(st.lists(drawn.pairs, min_size=8, max_size=8))
    values = [framed(1, written(schema, {"a": value})) for value, _ in pairs]
    loading = Loading(ValueFormat.AVRO, {1: RegisteredSchema("AVRO", json.dumps(schema), {})})
    with whole_columns_of_any_number():
        found = loading.new_fields([values], [("-",)])
        assert {new.path for new in found} == {("a",)}
        is_held(loading, values, found | loading.new_fields([values], [("a", "-")]))


@settings(max_examples=80, suppress_health_check=LARGE)
@given(avro_records(), st.data())
def test_the_types_of_new_avro_fields_do_not_depend_on_how_records_are_cut_and_ordered(
    drawn: tuple[dict[int | str, RegisteredSchema], list[bytes]], data: st.DataObject
) -> None:
    schemas, values = drawn
    loading = Loading(ValueFormat.AVRO, schemas)
    paths = data.draw(st.sampled_from([(("-",),), THROUGH]))
    each_alone = set().union(*(loading.new_fields([[value]], paths) for value in values))
    cut = data.draw(st.integers(0, len(values)))
    with whole_columns_of_any_number():
        assert loading.new_fields([values[:cut], values[cut:]], paths) == each_alone


@pytest.mark.parametrize("type_name", PROTOBUF_TYPES)
@settings(max_examples=3, suppress_health_check=LARGE)
@given(st.data())
def test_the_column_of_a_new_protobuf_field_holds_every_value_of_its_schema(
    type_name: str, data: st.DataObject
) -> None:
    values, (_, _, loading) = data.draw(messages(type_name)), protobuf_of(type_name)
    found = loading.new_fields([values], [("-",)])
    assert {new.path for new in found} == {("a",)}
    is_held(loading, values, found | loading.new_fields([values], [("a", "-")]))


@st.composite
def messages(draw: st.DrawFn, type_name: str) -> list[bytes]:
    schema, message, _ = protobuf_of(type_name)
    drawn = [message() for _ in range(8)]
    for one in drawn:
        Writer(draw, schema).fill(one, "Outer")
    return [framed(1, b"\x00" + one.SerializeToString()) for one in drawn]


@cache
def protobuf_of(type_name: str) -> tuple[Schema, Any, Loading]:
    """Return a schema whose field ``a`` is of a type, its message, and what decodes its records."""
    # A number without a name is a dead letter for the text column of an enum: proto2 draws none.
    schema = Schema("proto2", {"Outer": [Field("required", type_name, "", "a", 1)], "Inner": INNER})
    registered = RegisteredSchema("PROTOBUF", schema.text, {})
    return schema, message_class(schema.text, "drawn.Outer"), Loading(ValueFormat.PROTOBUF, {1: registered})
