"""The peer ``spark_staged`` loads each record once, whatever was run before or beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest

from sandbox.kafka import KafkaBroker
from tests.benchmarks.load import Load
from tests.benchmarks.peers.contender import ContenderError
from tests.benchmarks.peers.spark_staged_application import create_staging, publish, unread
from tests.benchmarks.workloads import ORDERS
from tests.benchmarks.world import create_table
from tests.integration.pipeline_under_test import produced
from tests.services import ProducerFactory, TopicFactory


@pytest.fixture
def load(database: dict[str, Any], kafka_broker: KafkaBroker, topic: TopicFactory) -> Load:
    """A load of a topic with two partitions, which is empty, into a table, which is empty."""
    create_table(database, "bench", ORDERS)
    return Load("orders", 5, 2, kafka_broker.bootstrap, topic(2), "bench", "")


@pytest.fixture
def connection(database: dict[str, Any]) -> Iterator[Any]:
    with closing(psycopg2.connect(**database)) as opened:
        yield opened


def feed(load: Load, producer: ProducerFactory, *partitions: int) -> None:
    """Send one record to each partition that is named."""
    with produced(producer()) as sender:
        for partition in partitions:
            sender.produce(load.topic, ORDERS.value(partition), partition=partition)


def staged(connection: Any, load: Load, rows: int) -> str:
    """Return a staging table with so many rows."""
    staging = create_staging(connection, load)
    with connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {staging} (order_id) SELECT generate_series(1, %s)", (rows,))
    return staging


def rows_of(connection: Any, load: Load) -> int:
    with connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {load.table}")
        return int(cursor.fetchall()[0][0])


def test_a_run_reads_what_came_after_the_published_offsets(
    connection: Any, load: Load, producer: ProducerFactory
) -> None:
    feed(load, producer, 0, 0, 0)
    assert unread(connection, load) == {0: (0, 3)}
    publish(connection, load, staged(connection, load, 3), {0: (0, 3)})
    assert unread(connection, load) == {}
    feed(load, producer, 0, 1)
    assert unread(connection, load) == {0: (3, 4), 1: (0, 1)}


def test_the_second_of_two_runs_over_a_range_writes_nothing(connection: Any, load: Load) -> None:
    unread(connection, load)
    ranges, both = {0: (0, 3)}, [staged(connection, load, 3) for _ in range(2)]
    publish(connection, load, both[0], ranges)
    with pytest.raises(ContenderError, match="partition 0 was loaded from 0 by another run"):
        publish(connection, load, both[1], ranges)
    assert rows_of(connection, load) == 3


@pytest.mark.parametrize("rows", [0, 4])
def test_rows_that_are_lost_or_doubled_in_staging_are_not_published(connection: Any, load: Load, rows: int) -> None:
    unread(connection, load)
    with pytest.raises(ContenderError, match=f"{rows} rows were staged of 3 records"):
        publish(connection, load, staged(connection, load, rows), {0: (0, 3)})
    assert rows_of(connection, load) == 0
    publish(connection, load, staged(connection, load, 3), {0: (0, 3)})
    assert rows_of(connection, load) == 3
