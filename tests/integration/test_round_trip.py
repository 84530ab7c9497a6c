"""Arbitrary records through the real path come back exactly, or as dead letters with their original bytes.

Each list that hypothesis makes is produced to one topic and loaded by four pipelines, one a value format, with the
job's own code, a real broker and a real database.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sandbox.kafka import KafkaBroker
from tests.integration.arbitrary_records import (
    MISSING,
    RECORDS,
    Record,
    fields_of,
    has_storable_time,
    json_of,
    stored_json,
    text_of,
)
from tests.integration.pipeline_under_test import PipelineUnderTest, produced, set_connections
from tests.services import ProducerFactory, TopicFactory

PARTITIONS = 2
FORMATS = ("raw", "text", "json", "columns")
Where = tuple[int, int]
Sent = dict[Where, Record]


@dataclass
class Formats:
    topic: str
    raw: PipelineUnderTest
    text: PipelineUnderTest
    document: PipelineUnderTest
    columns: PipelineUnderTest

    @property
    def all(self) -> tuple[PipelineUnderTest, ...]:
        return (self.raw, self.text, self.document, self.columns)


@pytest.fixture
def formats(
    tmp_path: Path,
    database: dict[str, Any],
    kafka_broker: KafkaBroker,
    topic: TopicFactory,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Formats:
    set_connections(monkeypatch, bootstrap=kafka_broker.bootstrap, database=database)
    monkeypatch.setenv("KAFKA_INGEST_PIPELINES", str(tmp_path))
    # Any time is taken, and nothing is deleted because its time is long ago.
    name = topic(PARTITIONS, {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)})
    formats = Formats(name, *(PipelineUnderTest(f"as_{f}", tmp_path, database, capfd) for f in FORMATS))
    write_pipelines(formats)
    return formats


def write_pipelines(formats: Formats) -> None:
    name = formats.topic
    limits = {"max_count": 1_000_000, "max_ratio": 1.0, "max_consecutive": 1_000_000}
    columns = [
        {"name": "flag", "type": "boolean"},
        {"name": "whole", "type": "bigint"},
        {"name": "exact", "type": "numeric(9,3)"},
        {"name": "words", "type": "text"},
        {"name": "list", "type": "integer[]"},
    ]
    common = {"dead_letters": limits, "tombstones": "row"}
    formats.raw.write(name, **common)
    formats.text.write(
        name, value={"format": "text", "column": "line"}, key={"format": "text", "column": "key"}, **common
    )
    formats.document.write(
        name, value={"format": "json", "column": "document"}, key={"format": "json", "column": "key"}, **common
    )
    formats.columns.write(name, value={"format": "json", "columns": columns}, **common)


def send(records: list[Record], sender: Any, name: str) -> Sent:
    """Produces the records and gives them by partition and offset, as the broker acknowledged them."""
    sent: Sent = {}

    def acknowledged(record: Record) -> Any:
        def note(error: Any, message: Any) -> None:
            assert error is None, error
            sent[message.partition(), message.offset()] = record

        return note

    with produced(sender):
        for index, record in enumerate(records):
            sender.produce(
                name,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                partition=index % PARTITIONS,
                timestamp=record.time_ms,
                on_delivery=acknowledged(record),
            )
    return sent


def rows_of(pipeline: PipelineUnderTest, columns: str, sent: Sent) -> dict[Where, tuple[Any, ...]]:
    """The target's rows of what was just sent, after headers and times were compared."""
    everywhere = "kafka_partition, kafka_offset, headers::text, round(extract(epoch FROM kafka_timestamp) * 1000)"
    found = {}
    for partition, offset, headers, time_ms, *values in pipeline.rows(f"{everywhere}, {columns}"):
        record = sent.get((partition, offset))
        if record is None:
            continue
        assert json.loads(headers) == [
            {"key": n, "value": None if v is None else base64.b64encode(v).decode()} for n, v in record.headers
        ]
        assert int(time_ms) == record.time_ms
        found[partition, offset] = tuple(values)
    return found


def require_dead_letters(pipeline: PipelineUnderTest, sent: Sent, expected: set[Where]) -> None:
    """Exactly these records are dead letters, each with all its bytes."""
    columns = 'partition, "offset", key, value, record_time_ms, header_names, header_values'
    found = {}
    for partition, offset, key, value, time_ms, names, values in pipeline.dead_letters(columns):
        if (partition, offset) in sent:
            pairs = zip(names or [], [None if v is None else bytes(v) for v in values or []], strict=True)
            found[partition, offset] = Record(key, value, tuple(pairs), time_ms)
    assert found == {
        where: Record(record.key, record.value, record.headers, record.time_ms)
        for where, record in sent.items()
        if where in expected
    }


def require(pipeline: PipelineUnderTest, sent: Sent, found: dict[Any, Any], expected: dict[Any, Any]) -> None:
    """Rows are as expected; what has ``MISSING`` in it, or a time that cannot be stored, is a dead letter."""
    dead = {
        where
        for where, record in sent.items()
        if not has_storable_time(record) or any(value is MISSING for value in expected[where])
    }
    assert found == {where: values for where, values in expected.items() if where not in dead}
    require_dead_letters(pipeline, sent, dead)


def require_columns(pipeline: PipelineUnderTest, sent: Sent) -> None:
    """A row holds what its document says, exactly; a document that fits is a row; everything else is a dead letter."""
    names = ("flag", "whole", "exact", "words", "list")
    found = rows_of(pipeline, "flag, whole, exact, words, list", sent)
    for where, values in found.items():
        document = fields_of(sent[where].value)
        for name, value in zip(names, values, strict=True):
            said = document.get(name)
            assert (value is None) == (said is None), (name, said)
            assert value == said, name
            assert isinstance(value, bool) == isinstance(said, bool), name
            assert not (isinstance(said, list) and any(isinstance(item, bool) for item in said)), name
    must = {w for w, r in sent.items() if has_storable_time(r) and (r.fits_columns or r.value is None)}
    assert must <= found.keys()
    require_dead_letters(pipeline, sent, sent.keys() - found.keys())


# Few and long lists, because a list costs four real loads; not shrunk, because an attempt would, too.
@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.data_too_large, HealthCheck.too_slow],
)
@given(records=st.lists(RECORDS, min_size=50, max_size=150))
def test_every_record_comes_back_exactly_or_as_a_dead_letter_with_its_bytes(
    records: list[Record], formats: Formats, producer: ProducerFactory
) -> None:
    sent = send(records, producer(), formats.topic)
    for pipeline in formats.all:
        pipeline.load_here()
    require(
        formats.raw,
        sent,
        rows_of(formats.raw, "payload, key", sent),
        {where: (record.value, record.key) for where, record in sent.items()},
    )
    require(
        formats.text,
        sent,
        rows_of(formats.text, "line, key", sent),
        {where: (text_of(record.value), text_of(record.key)) for where, record in sent.items()},
    )
    documents = rows_of(formats.document, "document::text, key::text", sent)
    require(
        formats.document,
        sent,
        {where: tuple(map(stored_json, texts)) for where, texts in documents.items()},
        {where: (json_of(record.value), json_of(record.key)) for where, record in sent.items()},
    )
    require_columns(formats.columns, sent)
