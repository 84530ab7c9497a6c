"""A registry that gives no schema costs no record: the offsets stay, and the run after the mend loads each once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from kafka_ingest.errors import (
    RETRY_LATER,
    STOP_AND_CALL,
    ConfigError,
    IngestError,
    RegistryUnavailable,
    SchemaMissing,
)
from kafka_ingest.kafka import registry as module
from kafka_ingest.kafka.registry import SCHEMA_KINDS
from tests.avro_encoding import long
from tests.certificates import Authority
from tests.integration.pipeline_under_test import FedPipeline
from tests.integration.test_registry_formats import REGISTRY, use
from tests.protobuf_messages import varint
from tests.registry_faults import (
    CLOSED,
    CUT_JSON,
    LOGIN_PAGE,
    OTHER_JSON,
    SILENT,
    UNKNOWN_SCHEMA,
    Answer,
    refusal,
    registry_faults,
    told,
)

#: What the registry answers, whatever it is asked for, and how the load ends.
FAULTS: dict[str, tuple[Answer, type[IngestError]]] = {
    "hangs up": (CLOSED, RegistryUnavailable),
    "slow": (SILENT, RegistryUnavailable),
    "busy": (refusal(429), RegistryUnavailable),
    "failing": (refusal(500), RegistryUnavailable),
    "away behind its proxy": (refusal(503), RegistryUnavailable),
    "asks who we are": (refusal(401), ConfigError),
    "forbids": (refusal(403), ConfigError),
    "no such page": (Answer(404, b"<html>no such page</html>", "text/html"), ConfigError),
    "a login page": (LOGIN_PAGE, ConfigError),
    "half an answer": (CUT_JSON, ConfigError),
    "another service": (OTHER_JSON, ConfigError),
    "does not know the schema": (UNKNOWN_SCHEMA, SchemaMissing),
}
SCHEMAS: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "avro": ('{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}', long),
    "protobuf": ('syntax = "proto3"; message Order { int64 id = 1; }', lambda number: b"\0\x08" + varint(number)),
    "json_schema": (
        '{"title": "Order", "properties": {"id": {"type": "integer"}}}',
        lambda number: b'{"id": %d}' % number,
    ),
}


class Loaded:
    """A pipeline that has loaded its first record, of three, before the registry fails."""

    def __init__(self, pipeline: FedPipeline, registry: SchemaRegistryClient, value_format: str) -> None:
        schema, payload = SCHEMAS[value_format]
        value = {"format": value_format, "columns": [{"name": "id", "type": "bigint"}]}
        topic = pipeline.open(kafka=REGISTRY, value=value, tombstones="count", dead_letters={"max_ratio": 1.0})
        self.schema_id = registry.register_schema(f"{topic}-value", Schema(schema, SCHEMA_KINDS[value_format]))
        self.schema = schema
        self._pipeline = pipeline
        first, *others = (b"\0" + self.schema_id.to_bytes(4, "big") + payload(number) for number in (10, 11, 12))
        pipeline.send(first)
        pipeline.load_here()
        pipeline.send(*others)

    def state(self) -> tuple[list[Any], list[Any], list[Any]]:
        """Return position, rows and dead letters."""
        offsets = "SELECT committed_offset FROM kafka_ingest.committed_offset WHERE pipeline = %s"
        found = self._pipeline.query(offsets, self._pipeline.name)
        return found, self._pipeline.rows("kafka_offset, id"), self._pipeline.dead_letters("*")

    def fails(self, expected: type[IngestError]) -> None:
        """Load, which must fail and move nothing."""
        with pytest.raises(expected) as raised:
            self._pipeline.load_here()
        assert type(raised.value) is expected
        assert self.state() == ([(1,)], [(0, 10)], [])

    def loads_the_rest(self) -> None:
        self._pipeline.load_here()
        assert self.state() == ([(3,)], [(0, 10), (1, 11), (2, 12)], [])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry's client waits for no answer long, and between its tries hardly at all."""
    monkeypatch.setattr(module, "_LONGEST_WAIT_MS", 1)
    monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 0.5)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("value_format", "faults"),
    [
        ("avro", list(FAULTS)),
        ("protobuf", ["busy", "asks who we are", "does not know the schema"]),
        ("json_schema", ["busy", "asks who we are", "does not know the schema"]),
    ],
    ids=list(SCHEMAS),
)
def test_whatever_the_registry_answers_no_record_is_lost_or_doubled(
    value_format: str,
    faults: list[str],
    pipeline: FedPipeline,
    registry: SchemaRegistryClient,
    registry_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = Loaded(pipeline, registry, value_format)
    with registry_faults(registry_url) as proxy:
        use(monkeypatch, proxy.url)
        for fault in faults:
            proxy.answer, expected = FAULTS[fault]
            loaded.fails(expected)
        proxy.answer = None
        loaded.loads_the_rest()


@pytest.mark.usefixtures("impatient")
def test_a_registry_that_is_down_or_elsewhere_costs_no_record(
    pipeline: FedPipeline, registry: SchemaRegistryClient, registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = Loaded(pipeline, registry, "avro")
    with registry_faults(registry_url) as proxy:
        gone, below = proxy.url, f"{proxy.url}/below"
        use(monkeypatch, below)
        loaded.fails(ConfigError)
    use(monkeypatch, gone)
    loaded.fails(RegistryUnavailable)
    use(monkeypatch, registry_url)
    loaded.loads_the_rest()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("value_format", SCHEMAS)
def test_a_reference_that_is_missing_stops_the_load_until_it_is_there(
    value_format: str,
    pipeline: FedPipeline,
    registry: SchemaRegistryClient,
    registry_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = Loaded(pipeline, registry, value_format)
    lost = [{"name": "money", "subject": f"{pipeline.topic}-money", "version": 1}]
    kind = SCHEMA_KINDS[value_format]
    with registry_faults(registry_url) as proxy:
        use(monkeypatch, proxy.url)
        answer = told({"schema": loaded.schema, "schemaType": kind, "references": lost})
        proxy.answers[f"/apis/ccompat/v7/schemas/ids/{loaded.schema_id}"] = answer
        loaded.fails(SchemaMissing)
        other = {"avro": '{"type": "record", "name": "money", "fields": []}', "protobuf": 'syntax = "proto3";'}
        text = other.get(value_format, '{"title": "Money", "properties": {}}')
        registry.register_schema(f"{pipeline.topic}-money", Schema(text, kind))
        loaded.loads_the_rest()


@pytest.mark.usefixtures("impatient")
def test_tls_of_an_unknown_ca_costs_no_record(
    pipeline: FedPipeline,
    registry: SchemaRegistryClient,
    registry_url: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    loaded = Loaded(pipeline, registry, "avro")
    right, wrong = tmp_path / "ca.crt", Authority(tmp_path, "another").location
    with registry_faults(registry_url, certificates=tmp_path) as proxy:
        use(monkeypatch, proxy.url)
        loaded.fails(ConfigError)
        use(monkeypatch, proxy.url, extra={"ssl.ca.pem": wrong.read_text()})
        loaded.fails(ConfigError)
        use(monkeypatch, proxy.url, extra={"ssl.ca.pem": right.read_text()})
        loaded.loads_the_rest()


@pytest.mark.usefixtures("impatient")
def test_a_replay_without_the_registry_resolves_nothing_and_the_next_one_does(
    pipeline: FedPipeline, registry: SchemaRegistryClient, registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = Loaded(pipeline, registry, "avro")
    pipeline.send(b"\0" + loaded.schema_id.to_bytes(4, "big") + long(2**31))
    value = {"format": "avro", "columns": [{"name": "id", "type": "integer"}]}
    sections = {"kafka": REGISTRY, "tombstones": "count", "dead_letters": {"max_ratio": 1.0}}
    pipeline.query(f"ALTER TABLE {pipeline.table} ALTER COLUMN id TYPE integer")
    pipeline.write(pipeline.topic, value=value, **sections)
    pipeline.load_here()
    assert pipeline.dead_letters('"offset", reason, resolution') == [(3, "out_of_range", None)]
    value["columns"] = [{"name": "id", "type": "bigint"}]
    pipeline.query(f"ALTER TABLE {pipeline.table} ALTER COLUMN id TYPE bigint")
    pipeline.write(pipeline.topic, value=value, **sections)
    replay = ("dead-letters", "replay", pipeline.name, "--reason", "ids are long", "--apply")
    with registry_faults(registry_url) as proxy:
        use(monkeypatch, proxy.url)
        for answer, code in (
            (refusal(429), RETRY_LATER),
            (refusal(401), STOP_AND_CALL),
            (UNKNOWN_SCHEMA, STOP_AND_CALL),
        ):
            proxy.answer = answer
            assert pipeline.command(*replay)[0] == code
            assert pipeline.dead_letters('"offset", resolution') == [(3, None)]
        proxy.answer = None
        assert pipeline.command(*replay)[0] == 0
    assert pipeline.dead_letters('"offset", resolution') == [(3, "replayed")]
    assert pipeline.rows("kafka_offset, id") == [(0, 10), (1, 11), (2, 12), (3, 2**31)]
