"""A plan of thousands of partitions asks PostgreSQL and Kafka as often as a plan of a few: no time is looked at."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from typing import Any, ClassVar

import psycopg2
import pytest
from confluent_kafka.admin import AdminClient

from kafka_ingest.errors import ConfigError, PartitionFault
from kafka_ingest.kafka import log as kafka_admin
from kafka_ingest.kafka.log import KafkaLog
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.protocol.batch import Batch, Request
from kafka_ingest.protocol.plan import PlanPorts, plan_batch
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import IsolationLevel, TopicSelection
from sandbox.kafka import KafkaBroker
from sandbox.postgres import PostgresServer
from tests.builders import offset_range, pipeline_settings, position
from tests.contracts.ledger_values import choosing, new_plan, view
from tests.contracts.ledger_worlds import PostgresWorld
from tests.deadlines import until
from tests.fakes.log import FakeLog
from tests.integration.pipeline_under_test import EveryRunHasEnded
from tests.services import TopicFactory, fresh_database

#: A broker takes seconds to create thousands; hundreds show growth as well.
ON_A_BROKER = 400


class CountedCursor(psycopg2.extensions.cursor):
    """Counts statements by their text, in which parameters have no values yet."""

    statements: ClassVar[Counter[str]] = Counter()

    def execute(self, query: Any, parameters: Any = None) -> None:
        self.statements[str(query)] += 1
        super().execute(query, parameters)


def plan(params: Mapping[str, Any], log: FakeLog) -> Batch:
    ports = PlanPorts(PostgresLedger(params), log, PostgresTarget(params), EveryRunHasEnded())
    return plan_batch(pipeline_settings("orders"), Request("orders", uuid.uuid4().hex), ports, settings_hash="hash-1")


def statements_of_plans(server: PostgresServer, partitions: int) -> Iterator[Counter[str]]:
    """Plans as a new pipeline, then with a record in every partition, then in the place of that plan."""
    log = FakeLog()
    log.create_topic("orders", partitions)
    with fresh_database(server) as params:
        with closing(psycopg2.connect(**params)) as connection, connection, connection.cursor() as cursor:
            cursor.execute("CREATE SCHEMA shop")
        for ranges in (0, partitions, partitions):
            CountedCursor.statements.clear()
            batch = plan({**params, "cursor_factory": CountedCursor}, log)
            assert len(batch.ranges) == ranges
            yield Counter(CountedCursor.statements)
            for number in range(partitions):
                log.append("orders", b"value", partition=number)


def test_ten_thousand_partitions_are_planned_with_the_statements_of_two(postgres_server: PostgresServer) -> None:
    few, many = statements_of_plans(postgres_server, 2), statements_of_plans(postgres_server, 10_000)
    for of_few, of_many in zip(few, many, strict=True):
        assert of_few
        assert of_many == of_few


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What the product's clients ask of Kafka: calls of the admin client's methods that answer with futures."""
    calls: Counter[str] = Counter()

    class CountedClient(AdminClient):  # type: ignore[misc]  # the library has no types
        def __getattribute__(self, name: str) -> Any:
            if name.startswith(("describe_", "list_")):
                calls[name] += 1
            return super().__getattribute__(name)

    monkeypatch.setattr(kafka_admin, "AdminClient", CountedClient)
    return calls


def requests_of_snapshots(broker: KafkaBroker, topics: list[str], snapshots: int) -> dict[str, int]:
    """Takes snapshots and times with a client of its own; gives librdkafka's counts of requests to all brokers."""
    told: list[dict[str, Any]] = []
    config: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "statistics.interval.ms": "50",
        "stats_cb": lambda text: told.append(json.loads(text)),
    }
    begin = time.monotonic()
    with KafkaLog(config) as log:
        for _ in range(snapshots):
            snapshot = log.snapshot(TopicSelection(names=tuple(topics)), IsolationLevel.READ_COMMITTED)
            where = [TopicPartition(name, number) for name in topics for number in snapshot.topics[name].partitions]
            assert len(log.offsets_at(1, where)) == len(where)
        age_us = (time.monotonic() - begin) * 1_000_000

        def is_told() -> bool:
            log._admin._open().poll(0.05)
            return bool(told) and told[-1]["age"] >= age_us

        until(is_told, "statistics from after the last answer are told")
    counts: Counter[str] = Counter()
    for found in told[-1]["brokers"].values():
        counts.update({name: count for name, count in found["req"].items() if count})
    return dict(counts)


def test_kafka_gets_as_many_requests_for_hundreds_of_partitions_as_for_one(
    kafka_broker: KafkaBroker, topic: TopicFactory, asked: Counter[str]
) -> None:
    few, many = topic(1), topic(ON_A_BROKER)
    with KafkaLog({"bootstrap.servers": kafka_broker.bootstrap}) as log:
        selection = TopicSelection(names=(many,))

        def answers() -> bool:
            states = log.snapshot(selection, IsolationLevel.READ_COMMITTED).topics[many].partitions
            return all(state.end_offset is not None for state in states.values())

        until(answers, "every partition has a leader that answers")

    counts = []
    for name in (few, many):
        asked.clear()
        requests = requests_of_snapshots(kafka_broker, [name], 3)
        counts.append((dict(asked), requests["ListOffsets"]))
    assert counts[0] == counts[1]
    # Log start, last stable offset, high watermark; the time, and the end where no record is that late.
    assert counts[1] == ({"describe_cluster": 3, "describe_topics": 3, "list_offsets": 15}, 15)


def test_every_kind_of_offset_is_asked_for_before_an_answer_comes(
    kafka_broker: KafkaBroker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(1)
    held: list[tuple[Future[Any], Future[Any]]] = []

    class HoldingClient(AdminClient):  # type: ignore[misc]  # the library has no types
        """Keeps answers back until log start, last stable offset and high watermark have been asked for."""

        def list_offsets(self, *args: Any, **options: Any) -> dict[Any, Future[Any]]:
            given: dict[Any, Future[Any]] = {}
            for where, answer in super().list_offsets(*args, **options).items():
                given[where] = Future()
                held.append((given[where], answer))
            if len(held) == 3:
                for kept, answer in held:
                    kept.set_result(answer.result(30))
            return given

    monkeypatch.setattr(kafka_admin, "AdminClient", HoldingClient)
    with KafkaLog({"bootstrap.servers": kafka_broker.bootstrap}, timeout_seconds=5) as log:
        found = log.snapshot(TopicSelection(names=(name,)), IsolationLevel.READ_COMMITTED)
    assert found.topics[name].partitions[0].end_offset == 0
    assert len(held) == 3


def test_texts_with_every_kind_of_character_come_back_from_an_array(database: dict[str, Any]) -> None:
    texts = ("", "NULL", '"', "\\", "{a,b}", "it's 100 %s", "line\nbreak", "naïve ünïcödé 💾", " blank ")
    world = PostgresWorld(database)
    faults = tuple(PartitionFault(ConfigError, text, text, text, "") for text in texts)
    plan = new_plan(offset_range(0, 0, 3), begins=(position(0, 0),))
    batch = world.ledger.record_plan(choosing(plan, unread_topics=texts, left_out=faults), view(world))
    assert batch.warnings == texts
    assert batch.left_out == tuple(f"{text}: ConfigError: expected {text}; found {text}" for text in texts)
