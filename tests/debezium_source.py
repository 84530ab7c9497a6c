"""Real change events: a database of a test's own whose tables Debezium captures to Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from psycopg2 import sql

from sandbox.connect import ConnectWorker
from sandbox.postgres import PostgresServer
from tests.deadlines import until
from tests.kafka_records import Record

CAPTURE_SECONDS = 60.0
_KAFKA_SECONDS = 30.0
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_MARKER = "debezium_source_marker"
#: Beside them a connector has where its database is, its names and its tables.
_CONNECTOR = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "tasks.max": "1",
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "filtered",
    "snapshot.mode": "initial",
    "poll.interval.ms": "50",
    "skipped.operations": "none",  # the default leaves truncations out
    "topic.creation.default.replication.factor": "1",  # the broker makes no topics by itself
    "topic.creation.default.partitions": "1",
    "key.converter": _JSON,
    "key.converter.schemas.enable": "false",
    "value.converter": _JSON,
    "value.converter.schemas.enable": "false",
}


class DebeziumSource:
    """A source database and the connectors that capture it; each has a slot, a publication and topics of its own.

    Args:
        server: A running server with ``wal_level=logical``.
        worker: A running Kafka Connect.
        bootstrap: Its Kafka.
    """

    def __init__(self, server: PostgresServer, worker: ConnectWorker, bootstrap: str) -> None:
        self._server = server
        self._worker = worker
        self._bootstrap = bootstrap
        self._database = f"source_{uuid.uuid4().hex[:16]}"
        self._connectors: dict[str, dict[str, str]] = {}
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        server.create_database(self._database)
        self.params = server.params(self._database)
        self.execute(f"CREATE TABLE {_MARKER} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)")

    def execute(self, *statements: str) -> None:
        """Run the statements in one transaction."""
        with closing(psycopg2.connect(**self.params)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def rows(self, question: str, *values: object) -> list[tuple[Any, ...]]:
        """Return what a query finds."""
        with closing(psycopg2.connect(**self.params)) as connection, connection.cursor() as cursor:
            cursor.execute(question, values)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

    def capture(self, tables: Sequence[str], **config: object) -> list[str]:
        """Capture tables of schema public from now on, what they hold included; can be called again, for other topics.

        Args:
            tables: Their names.
            config: More settings of Debezium or Connect, ``_`` standing for ``.``.

        Returns:
            The topics of the tables, in their order; each is there from its first event on.

        Raises:
            SandboxError: The connector failed, or its settings are refused.
        """
        name = f"capture_{uuid.uuid4().hex[:16]}"
        more = {key.replace("_", "."): _setting(value) for key, value in config.items()}
        self._connectors[name] = {**_CONNECTOR, **self._settings(name, tables), **more}
        self._begin(name)
        return [f"{name}.public.{table}" for table in tables]

    def capture_again(self) -> None:
        """Create the connectors again after the worker was started again: they go on where its offsets are."""
        self._wait_until_free()
        for name in self._connectors:
            self._begin(name)

    def wait_until_captured(self) -> None:
        """Wait until Kafka has acknowledged the events of all transactions that are committed now.

        A row that comes to a topic of its own says less: the producer may send it before what waits for another
        topic. But a slot is confirmed only as far as every record before was acknowledged and the worker wrote its
        offsets down, which therefore has to happen often (``offset.flush.interval.ms``).
        """
        [(position,)] = self.rows("SELECT pg_current_wal_insert_lsn()::text")
        until(lambda: self._is_confirmed(position), f"every connector confirmed {position}", CAPTURE_SECONDS)

    def records(self, topic: str) -> list[Record]:
        """Return all records of a topic, partition by partition in their order; none when there is no topic yet."""
        with _consumer(self._bootstrap) as consumer:
            found = consumer.list_topics(timeout=_KAFKA_SECONDS).topics.get(topic)
            partitions = [] if found is None else sorted(found.partitions)
            return [record for partition in partitions for record in _read(consumer, topic, partition)]

    def remove(self) -> None:
        """Delete the connectors, their slots and topics, and the database."""
        if self._worker.is_running():
            for name in self._connectors:
                self._worker.delete_connector(name)
        self._wait_until_free()
        self._delete_topics()
        with closing(psycopg2.connect(**self._server.params())) as connection:
            connection.autocommit = True
            # The database's slots go with it.
            connection.cursor().execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(self._database)))

    def _settings(self, name: str, tables: Sequence[str]) -> dict[str, str]:
        params = {key: str(value) for key, value in self.params.items()}
        return {
            "database.hostname": params["host"],
            "database.port": params["port"],
            "database.user": params["user"],
            "database.password": params["password"],
            "database.dbname": params["dbname"],
            "topic.prefix": name,
            "slot.name": name,
            "publication.name": name,
            "table.include.list": ",".join(f"public.{table}" for table in [*tables, _MARKER]),
        }

    def _begin(self, name: str) -> None:
        self._worker.create_connector(name, self._connectors[name])
        self._worker.wait_running(name)
        # It is in use from the end of the snapshot on; a connector that failed says so.
        until(
            lambda: self._worker.is_connector_running(name) and self._active() >= {name},
            f"the slot {name} is in use",
            CAPTURE_SECONDS,
        )

    def _wait_until_free(self) -> None:
        until(lambda: not self._active() & self._connectors.keys(), "nobody uses the slots", CAPTURE_SECONDS)

    def _active(self) -> set[str]:
        return {name for (name,) in self.rows("SELECT slot_name::text FROM pg_replication_slots WHERE active")}

    def _is_confirmed(self, position: str) -> bool:
        """Tell it of all slots, and move on: what a connector confirms is the transaction before its last one."""
        for name in self._connectors:
            self._worker.is_connector_running(name)  # one that failed says so: nobody has to wait for it
        self.execute(f"INSERT INTO {_MARKER} DEFAULT VALUES")
        question = (
            "SELECT count(*) FROM pg_replication_slots WHERE slot_name = ANY(%s) AND confirmed_flush_lsn >= %s::pg_lsn"
        )
        return self.rows(question, list(self._connectors), position) == [(len(self._connectors),)]

    def _delete_topics(self) -> None:
        known = self._admin.list_topics(timeout=_KAFKA_SECONDS).topics
        # Those of heartbeats have the connector's name behind a prefix.
        topics = [topic for topic in known if any(name in topic for name in self._connectors)]
        for deleted in (self._admin.delete_topics(topics) if topics else {}).values():
            deleted.result(_KAFKA_SECONDS)


@contextmanager
def fresh_source(server: PostgresServer, worker: ConnectWorker, bootstrap: str) -> Iterator[DebeziumSource]:
    """Yield a new source; remove it afterwards."""
    source = DebeziumSource(server, worker, bootstrap)
    try:
        yield source
    finally:
        source.remove()


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _consumer(bootstrap: str) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        yield consumer
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, partition: int) -> Iterator[Record]:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), _KAFKA_SECONDS)
    consumer.assign([TopicPartition(topic, partition, low)])
    # A batch is read to its end; Connect's producer writes no markers of transactions, so every offset is a record.
    next_offset = low
    while next_offset < high:
        message = consumer.poll(_KAFKA_SECONDS)
        assert message is not None, f"{topic} [{partition}] gave nothing from {next_offset} on, its end is {high}"
        assert message.error() is None, message.error()
        next_offset = message.offset() + 1
        yield _record(message)


def _record(message: Message) -> Record:
    kind, time = message.timestamp()  # librdkafka counts the kinds of times from 1, Kafka's format from 0
    return Record(
        offset=message.offset(),
        value=message.value(),
        key=message.key(),
        headers=message.headers(),
        timestamp_ms=time,
        timestamp_type=kind - 1,
        topic=message.topic(),
        partition=message.partition(),
    )
