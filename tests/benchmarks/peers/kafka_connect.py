"""Peer: Kafka Connect standalone with Debezium's JDBC sink, two tasks, batches of 5,000; ``--unnest``: UNNEST inserts.

The sink needs a schema: here Connect's JSON converter is given one for all records (``schema.content``, new in Kafka
4.2). It cannot write a nested value to a column, so where the table has jsonb columns the records are first written to
``<topic>-flat`` with these members as text: ``--prepare`` does that and is not timed.

Connect is started, and stopped when all rows are there: ``steady_seconds`` and ``steady_rows`` leave the start out.

The sink commits offsets to Kafka once a minute, after the database: a restart loads records twice, which its mode
"insert" keeps. A value that does not fit stops the task, or goes to a dead-letter topic if one is configured.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from functools import partial
from pathlib import Path
from typing import Any

from sandbox.java import java
from sandbox.maven import Artifact
from sandbox.paths import private_folder, write_secret
from sandbox.ports import PortBook
from sandbox.processes import ManagedProcess
from tests.benchmarks.load import Load
from tests.benchmarks.peers import versions
from tests.benchmarks.peers.arrivals import wait_for_rows
from tests.benchmarks.peers.contender import ContenderError, option, run
from tests.benchmarks.peers.flat_topic import topic_of_sink, write_flat_topic
from tests.benchmarks.peers.installs import fetched, unpacked
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
_LOGGING = """\
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
"""
_SCHEMAS: dict[str, dict[str, Any]] = {
    "bigint": {"type": "int64"},
    "integer": {"type": "int32"},
    "text": {"type": "string"},
    "double precision": {"type": "double"},
    "boolean": {"type": "boolean"},
    "timestamptz": {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
    "jsonb": {"type": "string", "name": "io.debezium.data.Json"},
}


def install() -> tuple[Path, Path]:
    """Fetches Connect and the sink; gives the folder with Connect's jars and the plugin folder."""
    connect = fetched(
        "connect",
        [
            Artifact("org.apache.kafka", "connect-runtime", versions.CONNECT),
            Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", versions.LOG4J),
        ],
    )
    sink = Artifact("io.debezium", "debezium-connector-jdbc", versions.DEBEZIUM, "plugin", "tar.gz")
    return connect, unpacked("debezium", sink)


def load_records(load: Load, params: dict[str, Any], *, unnest: bool) -> dict[str, float]:
    """Loads the topic; gives ``steady_seconds`` and ``steady_rows``, from the first row seen to the last."""
    folder = private_folder(Path(load.folder))
    port = PortBook(folder).port_for_start("connect")
    process = ManagedProcess("connect", folder)
    sink = sink_settings(load, params, unnest=unnest)
    try:
        process.start(_command(folder, port, load, sink), cwd=folder)
        status = f"http://127.0.0.1:{port}/connectors/{sink['name']}/status"
        return wait_for_rows(load, params, lambda: _check(process, status))
    finally:
        process.stop()
        (folder / "sink.json").unlink(missing_ok=True)  # it holds the password


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


def _command(folder: Path, port: int, load: Load, sink: dict[str, str]) -> list[str]:
    jars, plugins = install()
    worker = {
        "bootstrap.servers": load.bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.path": str(plugins),
        "plugin.discovery": "service_load",
        "offset.storage.file.filename": str(folder / "connect.offsets"),
        "key.converter": sink["key.converter"],
        "value.converter": sink["value.converter"],
    }
    (folder / "worker.properties").write_text("".join(f"{k}={v}\n" for k, v in worker.items()), encoding="utf-8")
    (folder / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
    write_secret(folder / "sink.json", json.dumps(sink))
    logging = f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"
    program = "org.apache.kafka.connect.cli.ConnectStandalone"
    files = [str(folder / "worker.properties"), str(folder / "sink.json")]
    return [java(), *_JAVA_OPTIONS, logging, "-cp", f"{jars}/*", program, *files]


def _check(process: ManagedProcess, status_url: str) -> None:
    """Raises what ended the connector, if anything did."""
    if not process.is_running():
        raise ContenderError(f"Connect ended; its log: {process.log}")
    try:
        with urllib.request.urlopen(status_url, timeout=10) as answer:
            status = json.load(answer)
    except urllib.error.URLError:  # it is still starting
        return
    for part in (status["connector"], *status["tasks"]):
        if part["state"] == "FAILED":
            raise ContenderError(f"the sink failed: {part['trace'].splitlines()[0]}; its log: {process.log}")


if __name__ == "__main__":
    if option("--prepare"):
        run(write_flat_topic)
    else:
        run(partial(load_records, unnest=option("--unnest")), install=install)
