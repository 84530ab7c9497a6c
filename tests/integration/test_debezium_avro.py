"""Change events that a real Debezium writes as Avro with a registry, into a table that equals the source."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from sandbox.connect import ConnectWorker, debezium_plugins
from sandbox.kafka import KafkaBroker
from sandbox.maven import Artifact, check_files, checksums, fetch, made_once
from sandbox.paths import SandboxPaths
from sandbox.postgres import PostgresServer
from tests.debezium_source import DebeziumSource, fresh_source
from tests.integration.pipeline_under_test import FedPipeline
from tests.integration.test_debezium_to_table import follow, rows_of, run_on
from tests.random_dml import TABLE, create_table, transactions
from tests.services import TestServices

CONVERTER = Artifact("io.apicurio", "apicurio-registry-utils-converter", "2.6.13.Final")
JARS = Path(__file__).parents[1] / "data" / "avro_converter_jars.sha256"
COLUMNS = [
    {"name": "id", "type": "bigint", "from": "key"},
    {"name": "tenant", "type": "text"},
    {"name": "amount", "type": "numeric(12,2)"},  # precise: the scale is in the schema
    {"name": "note", "type": "text"},
    {"name": "tags", "type": "text[]"},
    {"name": "payload", "type": "jsonb", "as": "json_text"},
    {"name": "at", "type": "timestamptz"},
]


def avro_plugins(cache: Path) -> Path:
    """Return the folder with the folder of the converters, fetching them (26 MB) the first time."""

    def make(draft: Path) -> None:
        jars = draft / CONVERTER.name
        jars.mkdir()
        fetch([CONVERTER], jars, ivy_cache=cache / "ivy")
        check_files(jars, checksums(JARS), listed_in=JARS)

    return made_once(cache / "avro-converter" / CONVERTER.version, make)


@pytest.fixture
def avro_source(
    own_services: TestServices, source_server: PostgresServer, kafka_broker: KafkaBroker
) -> Iterator[DebeziumSource]:
    """A source with a worker of its own, which has the converters."""
    cache = SandboxPaths(own_services.folder).cache
    plugins = f"{debezium_plugins(cache).resolve()},{avro_plugins(cache).resolve()}"
    # The converters' jars do not list what they bring: the worker looks into each class.
    settings = {"plugin.path": plugins, "plugin.discovery": "hybrid_warn", "offset.flush.interval.ms": "100"}
    worker = ConnectWorker(own_services.folder / "connect", kafka_broker.bootstrap, settings=settings)
    worker.start()
    with fresh_source(source_server, worker, kafka_broker.bootstrap) as source:
        yield source


def converters(registry_url: str) -> dict[str, object]:
    """The connector's settings: Avro for keys and values, framed as Confluent's clients frame it."""
    of_each = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        "_apicurio_registry_url": registry_url.replace("/ccompat/v7", "/registry/v2"),
        "_apicurio_registry_auto-register": True,
        "_apicurio_registry_find-latest": True,
        "_apicurio_registry_as-confluent": True,
        "_apicurio_registry_use-id": "contentId",
        "_apicurio_registry_headers_enabled": False,
    }
    both = {f"{part}_converter{name}": value for part in ("key", "value") for name, value in of_each.items()}
    return {**both, "schema_name_adjustment_mode": "avro", "field_name_adjustment_mode": "avro_unicode"}


@pytest.mark.slow
def test_the_table_is_the_source_table_from_events_in_avro(
    avro_source: DebeziumSource, pipeline: FedPipeline, registry_url: str, registry: SchemaRegistryClient
) -> None:
    """With a column that the source gets between two batches, so that the second is read with two schemas."""
    source, changes = avro_source, transactions(17)
    source.execute(*create_table(replica_identity="FULL"))
    for statements in islice(changes, 10):
        source.execute(*(one.text for one in statements))
    [topic] = source.capture([TABLE], **converters(registry_url))
    registry_sections = {"kafka": {"registry": "schema_registry_default"}, "key": {"format": "avro"}}
    follow(pipeline, topic, registry_sections, format="avro", columns=COLUMNS)
    deletes = 0
    for number in range(3):
        run_on(source, changes, 20)
        if number == 1:
            source.execute(f"ALTER TABLE {TABLE} ADD extra integer DEFAULT 7")
        run_on(source, changes, 20)
        counts = pipeline.load_here()["counts"]
        deletes += counts["deletes"]
        assert pipeline.dead_letters("reason, detail") == []
        assert rows_of(pipeline.database, pipeline.table) == rows_of(source.params, TABLE)
    assert deletes > 0
    assert len(registry.get_versions(f"{topic}-value")) == 2
