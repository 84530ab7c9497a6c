"""The servers that everything else stands on keep what they accepted, through a kill and a new start."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

import psycopg2
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from sandbox.kafka import KafkaBroker
from sandbox.postgres import PostgresServer
from tests.services import ProducerFactory, TestServices, TopicFactory


def test_postgres_keeps_committed_rows_through_a_kill(own_services: TestServices) -> None:
    own_postgres = own_services.postgres
    own_postgres.start()
    _run(own_postgres, "CREATE TABLE kept AS SELECT 42 AS answer")
    own_postgres.kill()
    assert not own_postgres.is_running()
    own_postgres.start()
    assert _run(own_postgres, "SELECT answer FROM kept") == [(42,)]


def test_postgres_keeps_port_and_password_over_stop_and_start(own_services: TestServices) -> None:
    own_postgres = own_services.postgres
    own_postgres.start()
    before = own_postgres.params()
    own_postgres.stop()
    own_postgres.start()
    assert own_postgres.params() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_postgres_runs_where_its_user_cannot_enter_the_checkout(own_services: TestServices) -> None:
    closed = own_services.folder / "closed"
    closed.mkdir(parents=True)
    closed.chmod(0o700)
    server = PostgresServer(closed / "state" / "postgres", fsync=False)
    try:
        server.start()
        assert _run(server, "SELECT 42") == [(42,)]
        assert not server.log.is_relative_to(closed)
    finally:
        server.destroy()
    assert not server.log.exists()


def test_kafka_keeps_acknowledged_records_and_its_address_through_a_kill(own_services: TestServices) -> None:
    own_kafka = own_services.kafka
    own_kafka.start()
    address = own_kafka.bootstrap
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
    producer = Producer({"bootstrap.servers": address, "acks": "all"})
    producer.produce("kept", value=b"42")
    assert producer.flush(30) == 0
    own_kafka.kill()
    assert not own_kafka.is_running()
    own_kafka.start()
    assert own_kafka.bootstrap == address
    assert _first_value(address, "kept") == b"42"


def test_a_topic_has_the_partitions_that_were_asked_for(
    kafka_broker: KafkaBroker, topic: TopicFactory, producer: ProducerFactory
) -> None:
    name = topic(partitions=3)
    producer().produce(name, value=b"x", partition=2)
    metadata = AdminClient({"bootstrap.servers": kafka_broker.bootstrap}).list_topics(name, timeout=30)
    assert sorted(metadata.topics[name].partitions) == [0, 1, 2]


def test_two_databases_share_nothing(database: dict[str, Any], postgres_server: PostgresServer) -> None:
    with closing(psycopg2.connect(**database)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE mine (n integer)")
        connection.commit()
    assert _run(postgres_server, "SELECT to_regclass('public.mine') IS NULL") == [(True,)]


def _run(server: PostgresServer, statement: str) -> list[tuple[Any, ...]]:
    with closing(psycopg2.connect(**server.params())) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        rows = cursor.fetchall() if cursor.description else []
        connection.commit()
        return rows


def _first_value(bootstrap: str, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert value is None or isinstance(value, bytes)
        return value
    finally:
        consumer.close()
