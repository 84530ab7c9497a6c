"""Whatever schemas and records are drawn, a draft of them loads its sample, and a second one is equal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_ingest.kafka.registry import RegisteredSchema
from spark_jobs.read_sample import read_sample
from tests.drafting import KnownSchemas, loads, registered_draft, values_of
from tests.drawn_avro import RECORDS, written
from tests.drawn_protobuf import Schema
from tests.drawn_protobuf import written as written_message

LARGE = [HealthCheck.too_slow, HealthCheck.data_too_large]


def loads_by_its_draft(payloads: list[tuple[int, bytes]], schemas: dict[int, RegisteredSchema]) -> str:
    """Draft the records of schemas, load them, and return the draft."""
    registry = KnownSchemas({number: schemas[number] for number in schemas})
    records = values_of(*(b"\x00" + number.to_bytes(4, "big") + payload for number, payload in payloads))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafka_ingest.draft.schemas.read_samples", lambda asked: [read_sample(one) for one in asked])
        text = registered_draft(records, registry)
        assert registered_draft(records, registry) == text
        assert loads(text, records, registry, patch)
    return text


@st.composite
def avro_samples(draw: st.DrawFn) -> tuple[list[tuple[int, bytes]], dict[int, RegisteredSchema]]:
    drawn = [draw(RECORDS) for _ in range(draw(st.integers(1, 3)))]
    schemas = {number: RegisteredSchema("AVRO", json.dumps(of.schema), {}) for number, of in enumerate(drawn, 1)}
    payloads = [
        (number, written(of.schema, value))
        for number, of in enumerate(drawn, 1)
        for value, _ in draw(st.lists(of.pairs, min_size=1, max_size=3))
    ]
    return payloads, schemas


@settings(max_examples=40, suppress_health_check=LARGE)
@given(avro_samples())
def test_avro_of_several_versions(drawn: tuple[list[tuple[int, bytes]], dict[int, RegisteredSchema]]) -> None:
    loads_by_its_draft(*drawn)


@settings(max_examples=25, suppress_health_check=LARGE)  # each compiles its schemas three times
@given(st.lists(written_message("proto2", "proto3"), min_size=1, max_size=2))
def test_protobuf_of_several_versions(drawn: list[tuple[Schema, Any]]) -> None:
    schemas = {number: RegisteredSchema("PROTOBUF", of.text, {}) for number, (of, _) in enumerate(drawn, 1)}
    # The drawn messages stand in the order Outer, Inner: Outer is the first of its schema.
    payloads = [(number, b"\x00" + message.SerializeToString()) for number, (_, message) in enumerate(drawn, 1)]
    loads_by_its_draft(payloads, schemas)
