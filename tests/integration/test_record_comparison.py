"""The independent check of demo and soak finds what is wrong: it would be worth nothing if it always agreed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2
import pytest
from confluent_kafka import Producer
from psycopg2 import sql

from sandbox.airflow_settings import connection_variables, kafka_connection, postgres_connection
from sandbox.kafka import KafkaBroker
from sandbox.ledger_history import read_history
from sandbox.orders import malformed_record, order_record
from sandbox.paths import CHECKOUT
from sandbox.postgres import PostgresServer
from sandbox.soak.attempts import Attempt, run_arguments
from sandbox.soak.pipeline import PIPELINE, TABLE, TOPIC, write_pipeline
from sandbox.verification import Comparison, compare_orders
from tests.services import FreshTopics, fresh_database

SOUND, MALFORMED, TOMBSTONES = 10, 2, 3


@dataclass(frozen=True)
class Loaded:
    """A topic, and a database into which it was loaded."""

    bootstrap: str
    topic: str
    database: dict[str, Any]

    def compare(self) -> Comparison:
        history = read_history(self.database, self.topic)
        return compare_orders(self.bootstrap, self.topic, self.database, TABLE, history=history)

    def change(self, statement: str, *, rows: int = 1) -> None:
        with closing(psycopg2.connect(**self.database)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            assert cursor.rowcount == rows
            connection.commit()


@pytest.fixture(scope="module")
def original(
    postgres_server: PostgresServer, kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Loaded]:
    """One partition: orders 0 to 9, the last without a key, then two malformed ones, then three tombstones."""
    topics = FreshTopics(kafka_broker.bootstrap)
    name = topics.create()
    send(kafka_broker.bootstrap, name)
    with fresh_database(postgres_server) as database:
        load(tmp_path_factory.mktemp("comparison"), kafka_broker.bootstrap, name, database)
        yield Loaded(kafka_broker.bootstrap, name, database)
    topics.delete_all()


@pytest.fixture
def loaded(original: Loaded, postgres_server: PostgresServer) -> Iterator[Loaded]:
    """The same topic with a copy of the database, to be changed by one test."""
    name = f"test_{uuid4().hex[:16]}"
    with closing(psycopg2.connect(**postgres_server.params())) as connection:
        connection.autocommit = True
        cursor, copy = connection.cursor(), sql.Identifier(name)
        template = sql.Identifier(original.database["dbname"])
        cursor.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(copy, template))
        yield Loaded(original.bootstrap, original.topic, postgres_server.params(name))
        cursor.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(copy))


def send(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(SOUND):
        key = None if number == SOUND - 1 else order_record(number).key
        producer.produce(topic, key=key, value=order_record(number).value)
    for number in range(MALFORMED):
        producer.produce(topic, key=b"k", value=malformed_record(number, number).value)
    for _ in range(TOMBSTONES):
        producer.produce(topic, key=b"k", value=None)
    assert producer.flush(30) == 0


def load(folder: Path, bootstrap: str, topic: str, database: dict[str, Any]) -> None:
    write_pipeline(folder)
    file = folder / f"{PIPELINE}.yaml"
    file.write_text(file.read_text().replace(f"topics: [{TOPIC}]", f"topics: [{topic}]"))
    connections = {"kafka_default": kafka_connection(bootstrap), "postgres_default": postgres_connection(database)}
    env = {
        **os.environ,
        **connection_variables(connections),
        "KAFKA_INGEST_PIPELINES": str(folder),
        "PYTHONPATH": os.pathsep.join([str(CHECKOUT / "plugins"), str(CHECKOUT)]),
    }
    with ended(Attempt(run_arguments("r1", runner="in-process"), env=env, log=folder / "run.log")) as attempt:
        assert attempt.code() == 0, attempt.log.read_text()


@contextmanager
def ended(attempt: Attempt) -> Iterator[Attempt]:
    try:
        yield attempt
    finally:
        attempt.end()


def test_a_sound_load_is_exact(loaded: Loaded) -> None:
    found = loaded.compare()
    assert found.is_exact
    assert (found.produced, found.rows, found.dead_letters) == (SOUND + MALFORMED, SOUND, MALFORMED)
    assert (found.tombstones, found.miscounted_ranges, found.given_up) == (TOMBSTONES, 0, 0)


@pytest.mark.parametrize(
    ("statement", "missing", "duplicates", "unexpected"),
    [
        ("DELETE FROM shop.soak WHERE kafka_offset = 4", 1, 0, 0),
        ("INSERT INTO shop.soak SELECT * FROM shop.soak WHERE kafka_offset = 4", 0, 1, 0),
        ("UPDATE shop.soak SET amount = amount + 0.01 WHERE kafka_offset = 4", 1, 0, 1),
        ("UPDATE shop.soak SET note = NULL WHERE kafka_offset = 3", 1, 0, 1),
        ("UPDATE shop.soak SET customer_key = 'another' WHERE kafka_offset = 4", 1, 0, 1),
        ("UPDATE shop.soak SET customer_key = '' WHERE kafka_offset = 9", 1, 0, 1),
        ("UPDATE shop.soak SET kafka_offset = 99 WHERE kafka_offset = 4", 1, 0, 1),
        ('DELETE FROM kafka_ingest.dead_letter WHERE "offset" = 10', 1, 0, 0),
        ("UPDATE kafka_ingest.dead_letter SET value = 'x' WHERE \"offset\" = 10", 1, 0, 1),
        ('UPDATE kafka_ingest.dead_letter SET key = NULL WHERE "offset" = 10', 1, 0, 1),
    ],
)
def test_a_changed_database_is_not(
    loaded: Loaded, statement: str, missing: int, duplicates: int, unexpected: int
) -> None:
    loaded.change(statement)
    found = loaded.compare()
    assert not found.is_exact
    assert (found.missing, found.duplicates, found.unexpected) == (missing, duplicates, unexpected)


def test_a_tombstone_that_was_not_counted_is_noticed(loaded: Loaded) -> None:
    # One fewer tombstone and one more marker: the sums of the ledger still agree.
    loaded.change("UPDATE kafka_ingest.batch_partition SET tombstones = 2, invisible = invisible + 1")
    assert not loaded.compare().is_exact


#: Rolled back are orders 8 and 9, both dead letters and a tombstone, at offsets 8 to 12; a reset then gave up 9 to 11.
_PASSED_OVER = """
    INSERT INTO kafka_ingest.position_change
        (request_id, kind, pipeline, topic, partition, who, why, from_offset, to_offset, details)
    SELECT request_id, kind, pipeline, topic, partition, 'a test', 'a test', from_offset, to_offset, details::jsonb
      FROM kafka_ingest.committed_offset, (VALUES
          ('r1', 'rolled_back', 13, 8, '{}'),
          ('r2', 'reset', 9, 12, '{"given_up": [9, 12]}')) AS change (request_id, kind, from_offset, to_offset, details)
"""


def test_only_what_was_given_up_and_not_loaded_may_be_missing(loaded: Loaded) -> None:
    loaded.change(_PASSED_OVER, rows=2)
    loaded.change("DELETE FROM shop.soak WHERE kafka_offset >= 8", rows=2)
    loaded.change("DELETE FROM kafka_ingest.dead_letter", rows=2)
    found = loaded.compare()
    # Order 8 and the tombstone at 12 are missing: nobody gave them up.
    assert (found.given_up, found.missing, found.produced) == (3, 2, 9)


def test_a_record_that_was_given_up_and_is_there_is_unexpected(loaded: Loaded) -> None:
    loaded.change(_PASSED_OVER, rows=2)
    found = loaded.compare()
    # Order 9 and both dead letters; the tombstone at 12 is counted by nobody.
    assert (found.unexpected, found.missing) == (3, 1)
