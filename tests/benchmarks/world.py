"""The servers of the benchmarks: durable as in production, kept between runs, because topics take minutes to fill."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
from psycopg2 import sql

from kafka_ingest.postgres.migrations import migrate
from sandbox.kafka import KafkaBroker
from sandbox.paths import CHECKOUT
from sandbox.postgres import PostgresServer
from sandbox.registry import SchemaRegistry
from tests.benchmarks.load import POSTGRES_VARIABLE
from tests.benchmarks.workloads import Workload

STATE = CHECKOUT / ".sandbox" / "benchmarks"

METADATA = {
    "kafka_topic": "text",
    "kafka_partition": "integer",
    "kafka_offset": "bigint",
    "kafka_timestamp": "timestamptz",
}


@dataclass(frozen=True)
class BenchWorld:
    """A PostgreSQL server with ``fsync`` and ``synchronous_commit`` on, a Kafka broker, and a schema registry if asked.

    Attributes:
        folder: State folder; the servers are its ``postgres``, ``kafka`` and ``registry``.
    """

    folder: Path = STATE

    @property
    def postgres(self) -> PostgresServer:
        return PostgresServer(self.folder / "postgres")

    @property
    def kafka(self) -> KafkaBroker:
        return KafkaBroker(self.folder / "kafka")

    @property
    def registry(self) -> SchemaRegistry:
        return SchemaRegistry(self.folder / "registry")

    def start(self) -> None:
        """Starts PostgreSQL and Kafka, if they do not run."""
        self.postgres.start()
        self.kafka.start()

    def stop(self) -> None:
        """Stops all; topics and schemas stay."""
        self.postgres.stop()
        self.kafka.stop()
        self.registry.stop()

    def registry_url(self, workload: Workload) -> str:
        """Return the registry's address for a workload with a schema, starting the registry; else nothing."""
        if not workload.schema:
            return ""
        self.registry.start()
        return self.registry.url


@contextmanager
def fresh_database(world: BenchWorld) -> Iterator[Mapping[str, Any]]:
    """Return the parameters of a new database with the ledger; drops it afterwards. Nothing is left to be written."""
    name = f"bench_{uuid.uuid4().hex[:12]}"
    world.postgres.create_database(name)
    params = world.postgres.params(name)
    migrate(params)
    execute(world.postgres.params(), sql.SQL("CHECKPOINT"))
    try:
        yield params
    finally:
        execute(world.postgres.params(), sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def create_table(params: Mapping[str, Any], table: str, workload: Workload) -> None:
    """Makes the empty table that peers load, with the index, or the key, that the product gives its tables."""
    columns = {**workload.columns, **METADATA}
    definitions = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns.items()
    )
    name = sql.Identifier(table)
    execute(params, sql.SQL("CREATE TABLE {} ({})").format(name, definitions))
    if workload.key_column:
        key = sql.Identifier(workload.key_column)
        execute(params, sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({})").format(name, key))
    else:
        execute(params, sql.SQL("CREATE INDEX ON {} USING brin (kafka_partition, kafka_offset)").format(name))


#: The columns of a table, with the names that workloads give their types.
_COLUMNS = """
    SELECT attname, format_type(atttypid, NULL)
    FROM pg_attribute
    WHERE attrelid = {}::regclass AND attnum > 0
"""
_FILLERS = {
    "bigint": "key",
    "integer": "1",
    "numeric": "1",
    "text": "'before'",
    "timestamp with time zone": "now()",
    "uuid": "gen_random_uuid()",
}


def fill_with_states(params: Mapping[str, Any], table: str, topic: str, workload: Workload) -> None:
    """Gives the table a row of every key, each with a version before the topic's first record."""
    versions = {
        "kafka_topic": f"'{topic}'",
        "kafka_generation": "0",
        "kafka_partition": f"(key % {workload.partitions})::integer",
        "kafka_offset": "-1",
    }
    name = sql.Identifier("public", table)
    found = execute(params, sql.SQL(_COLUMNS).format(sql.Literal(f"public.{table}")))
    values = ", ".join(versions.get(column, _FILLERS[kind]) for column, kind in found)
    columns = sql.SQL(", ").join(sql.Identifier(column) for column, _ in found)
    filling = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM generate_series(0, {}) AS key")
    execute(params, filling.format(name, columns, sql.SQL(values), sql.Literal(workload.keys - 1)))
    execute(params, sql.SQL("VACUUM (ANALYZE) {}").format(name))
    execute(params, sql.SQL("CHECKPOINT"))


def execute(params: Mapping[str, Any], statement: sql.Composable) -> list[tuple[Any, ...]]:
    """Runs a statement in a transaction of its own; gives its rows."""
    with closing(psycopg2.connect(**params)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []


def postgres_environment(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the variable in which contenders find the database."""
    return {POSTGRES_VARIABLE: json.dumps(dict(params))}
