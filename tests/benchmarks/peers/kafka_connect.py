"""Peer: Kafka Connect standalone with Debezium's JDBC sink, two tasks, batches of 5,000; ``--unnest``: UNNEST inserts.

``--upsert``: its mode of that name, by the column that is the key of the workload's table.

The sink needs a schema: here Connect's JSON converter is given one for all records (``schema.content``, new in Kafka
4.2). It cannot write a nested value to a column, so where the table has jsonb columns the records are first written to
``<topic>-flat`` with these members as text: ``--prepare`` does that and is not timed.

Connect is started, and stopped when all rows are there: ``steady_seconds`` and ``steady_rows`` leave the start out.

The sink commits offsets to Kafka once a minute, after the database: a restart loads records twice, which its mode
"insert" keeps. A value that does not fit stops the task, or goes to a dead-letter topic if one is configured.
"""

from __future__ import annotations

import json
import uuid
from functools import partial
from pathlib import Path
from typing import Any

from sandbox.connect import ConnectWorker, connect_jars
from sandbox.maven import Artifact
from sandbox.paths import default_paths
from tests.benchmarks.load import Load
from tests.benchmarks.peers import versions
from tests.benchmarks.peers.arrivals import wait_for_last_records, wait_for_rows
from tests.benchmarks.peers.contender import option, run
from tests.benchmarks.peers.flat_topic import topic_of_sink, write_flat_topic
from tests.benchmarks.peers.installs import unpacked
from tests.benchmarks.workloads import WORKLOADS

#: Of the script connect-standalone.sh that Kafka ships.
_JAVA_OPTIONS = [
    "-Xms256M",
    "-Xmx2G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
]
_SCHEMAS: dict[str, dict[str, Any]] = {
    "bigint": {"type": "int64"},
    "integer": {"type": "int32"},
    "text": {"type": "string"},
    "double precision": {"type": "double"},
    "boolean": {"type": "boolean"},
    "timestamptz": {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
    "jsonb": {"type": "string", "name": "io.debezium.data.Json"},
}


def install() -> Path:
    """Fetches Connect and the sink; gives the plugin folder."""
    connect_jars(default_paths().cache)
    return unpacked(
        "debezium", Artifact("io.debezium", "debezium-connector-jdbc", versions.DEBEZIUM, "plugin", "tar.gz")
    )


def load_records(load: Load, params: dict[str, Any], *, unnest: bool) -> dict[str, float]:
    """Loads the topic; gives ``steady_seconds`` and ``steady_rows``, from the first row seen to the last."""
    worker = ConnectWorker(Path(load.folder) / "connect", load.bootstrap, plugins=install(), jvm=_JAVA_OPTIONS)
    sink = sink_settings(load, params, unnest=unnest)
    try:
        worker.start()
        worker.create_connector(sink["name"], sink)
        return wait_for_rows(load, params, lambda: _check(worker, sink["name"]))
    finally:
        worker.stop()


def upsert_records(load: Load, params: dict[str, Any]) -> dict[str, float]:
    """Loads the topic into a table with a row a key; gives ``steady_seconds``, and ``steady_rows`` of its records."""
    worker = ConnectWorker(Path(load.folder) / "connect", load.bootstrap, plugins=install(), jvm=_JAVA_OPTIONS)
    key = WORKLOADS[load.workload].key_column
    modes = {"insert.mode": "upsert", "primary.key.mode": "record_value", "primary.key.fields": key}
    sink = sink_settings(load, params, unnest=False) | modes
    try:
        worker.start()
        worker.create_connector(sink["name"], sink)
        return wait_for_last_records(load, params, lambda: _check(worker, sink["name"]))
    finally:
        worker.stop()


def sink_settings(load: Load, params: dict[str, Any], *, unnest: bool) -> dict[str, str]:
    """Return the connector's configuration."""
    return {
        "name": f"bench-{uuid.uuid4().hex}",
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "2",
        "topics": topic_of_sink(load),
        "connection.url": f"jdbc:postgresql://{params['host']}:{params['port']}/{params['dbname']}"
        "?reWriteBatchedInserts=true",
        "connection.username": params["user"],
        "connection.password": params["password"],
        "insert.mode": "insert",
        "primary.key.mode": "none",
        "schema.evolution": "none",
        "collection.name.format": f"public.{load.table}",
        "batch.size": "5000",
        "consumer.override.max.poll.records": "5000",
        "dialect.postgres.unnest.insert.enabled": str(unnest).lower(),
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "value.converter.schema.content": json.dumps(_schema(load)),
        "transforms": "metadata",
        "transforms.metadata.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.metadata.topic.field": "kafka_topic",
        "transforms.metadata.partition.field": "kafka_partition",
        "transforms.metadata.offset.field": "kafka_offset",
        "transforms.metadata.timestamp.field": "kafka_timestamp",
    }


def _schema(load: Load) -> dict[str, Any]:
    columns = WORKLOADS[load.workload].columns
    fields = [{"field": name, "optional": True, **_schema_of(kind)} for name, kind in columns.items()]
    return {"type": "struct", "optional": False, "fields": fields}


def _schema_of(kind: str) -> dict[str, Any]:
    if not kind.startswith("numeric("):
        return _SCHEMAS[kind]
    precision, scale = kind.removeprefix("numeric(").removesuffix(")").split(",")
    parameters = {"scale": scale, "connect.decimal.precision": precision}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}


def _check(worker: ConnectWorker, sink: str) -> None:
    """Raises what ended the connector, if anything did."""
    worker.is_connector_running(sink)


if __name__ == "__main__":
    if option("--prepare"):
        run(write_flat_topic)
    elif option("--upsert"):
        run(upsert_records, install=install)
    else:
        run(partial(load_records, unnest=option("--unnest")), install=install)
