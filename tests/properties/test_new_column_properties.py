"""Whatever schemas are drawn, the column of a new field holds its values, and its types do not depend on the cut."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
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
from tests.properties.test_avro_properties import RECORDS, written
from tests.properties.test_protobuf_properties import KINDS, Schema
from tests.properties.test_protobuf_properties import written as written_message

LARGE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
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
        self._schemas = Schemas(KnownSchemas(schemas), SCHEMA_KINDS[value_format], None)  # type: ignore[arg-type]

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


@settings(max_examples=80, suppress_health_check=LARGE)
@given(st.data())
def test_the_column_of_a_new_avro_field_holds_every_value_of_its_schema(data: st.DataObject) -> None:
    of = data.draw(RECORDS)
    values = [
        framed(1, written(of.schema, value)) for value, _ in data.draw(st.lists(of.pairs, min_size=1, max_size=4))
    ]
    loading = Loading(ValueFormat.AVRO, {1: RegisteredSchema("AVRO", json.dumps(of.schema), {})})
    with whole_columns_of_any_number():
        for paths in ((("-",),), THROUGH):
            is_held(loading, values, loading.new_fields([values], paths))


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


@settings(max_examples=30, suppress_health_check=LARGE)  # each compiles its schema twice
@given(st.data())
def test_the_column_of_a_new_protobuf_field_holds_every_value_of_its_schema(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # A number that an enum has no name for is a dead letter of a text column.
        patch.setitem(KINDS, "proto3", KINDS["proto2"])
        schema, message = data.draw(written_message("proto2", "proto3"))
    assume(schema.messages["Outer"])
    values = [framed(1, b"\x00" + message.SerializeToString())]
    loading = Loading(ValueFormat.PROTOBUF, {1: RegisteredSchema("PROTOBUF", schema.text, {})})
    is_held(loading, values, loading.new_fields([values], [("-",), *_through(schema)]))


def _through(schema: Schema) -> list[tuple[Any, ...]]:
    return [(field.name, "-") for field in schema.messages["Outer"] if field.number % 2]
