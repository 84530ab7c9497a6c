"""Somebody else writes the rows that a batch folds: the batch waits, or ends and is tried again, and loses nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
import pytest

from kafka_ingest.errors import RetryLater
from kafka_ingest.protocol.batch import Batch, RunOptions
from tests.deadlines import until
from tests.integration.test_state_traces import bench_of, put
from tests.state_bench import StateBench

KEYS = [f"key {number:02}" for number in range(40)]
WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'kafka_ingest publish' AND wait_event_type = 'Lock'"
)


@contextmanager
def somebody(bench: StateBench) -> Iterator[Any]:
    """A session that never takes itself for the victim of a deadlock."""
    with closing(psycopg2.connect(**bench.params)) as connection, connection.cursor() as cursor:
        cursor.execute("SET deadlock_timeout = '10min'")
        connection.commit()
        yield cursor
        connection.commit()


@pytest.fixture
def planned(database: Mapping[str, Any]) -> Iterator[tuple[StateBench, Batch, ThreadPoolExecutor]]:
    """A table of many keys, and a batch that writes all of them."""
    bench = bench_of(database)
    for note in (1, 2):
        for key in KEYS:
            bench.append(put(key, note))
        if note == 1:
            bench.live()
    with ThreadPoolExecutor(1) as beside:
        yield bench, bench.plan(RunOptions()), beside


def is_waiting(bench: StateBench) -> bool:
    return bench.query(WAITS) == [(1,)]


def held_by_the_batch(cursor: Any, but: str) -> str:
    """Return a key whose row the batch has locked; none of the others is."""
    cursor.execute("SAVEPOINT look")
    cursor.execute("SELECT id FROM shop.orders FOR UPDATE SKIP LOCKED")
    free = {key for (key,) in cursor.fetchall()}
    cursor.execute("ROLLBACK TO SAVEPOINT look")
    return min(set(KEYS) - free - {but})


def test_a_batch_waits_for_somebody_who_writes_one_of_its_rows(
    planned: tuple[StateBench, Batch, ThreadPoolExecutor],
) -> None:
    bench, batch, beside = planned
    with somebody(bench) as cursor:
        cursor.execute("UPDATE shop.orders SET at = 77 WHERE id = %s", (KEYS[20],))
        load: Future[Batch] = beside.submit(bench.load, batch)
        until(lambda: is_waiting(bench), "the batch waits for the row")
        cursor.connection.commit()
    assert load.result().counts is not None
    assert bench.query("SELECT DISTINCT note FROM shop.orders") == [(2,)]
    assert bench.violations() == bench.state_violations() == []


def test_a_batch_that_a_deadlock_ends_wrote_nothing_and_its_retry_writes_all(
    planned: tuple[StateBench, Batch, ThreadPoolExecutor],
) -> None:
    """Each of the two has a row that the other one waits for; PostgreSQL ends the batch's transaction."""
    bench, batch, beside = planned
    last = KEYS[-1]
    with somebody(bench) as cursor:
        cursor.execute("UPDATE shop.orders SET note = 77 WHERE id = %s", (last,))
        load = beside.submit(bench.load, batch)
        until(lambda: is_waiting(bench), "the batch waits for the row")
        cursor.execute("UPDATE shop.orders SET note = 77 WHERE id = %s", (held_by_the_batch(cursor, last),))
        with pytest.raises(RetryLater, match="deadlock detected"):
            load.result()
        cursor.connection.commit()
    assert sorted(bench.query("SELECT note, count(*) FROM shop.orders GROUP BY 1")) == [(1, len(KEYS) - 2), (77, 2)]
    assert bench.query("SELECT sum(committed_offset) FROM kafka_ingest.committed_offset") == [(len(KEYS),)]
    bench.load(batch)
    assert bench.query("SELECT note, count(*) FROM shop.orders GROUP BY 1") == [(2, len(KEYS))]
    assert bench.violations() == bench.state_violations() == []
