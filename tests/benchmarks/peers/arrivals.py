"""Waiting for rows that somebody else writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg2

from tests.benchmarks.load import Load
from tests.benchmarks.peers.contender import ContenderError
from tests.benchmarks.peers.topic import bounds, new_consumer

_POLL_SECONDS = 0.2
_CHECK_SECONDS = 5.0
#: Counting costs the database work: rows are counted one by one only when this many are missing.
_NEAR_END = 50_000
_LONGEST_SECONDS = 3_600.0

_ANY = "SELECT EXISTS (SELECT FROM public.{})"
_COUNT = "SELECT count(*) FROM public.{}"
#: At most about a second old while rows keep coming.
_ABOUT = "SELECT n_tup_ins FROM pg_stat_user_tables WHERE schemaname = 'public' AND relname = '{}'"


def wait_for_rows(load: Load, params: dict[str, Any], check: Callable[[], None]) -> dict[str, float]:
    """Waits until all records are in the table, calling ``check``, which may raise, every few seconds.

    Returns:
        ``steady_seconds`` from the first row seen to the last, and ``steady_rows`` that came in that time.

    Raises:
        ContenderError: It took an hour.
    """
    with closing(psycopg2.connect(**params)) as connection:
        connection.autocommit = True

        def asked(question: str) -> int:
            cursor = connection.cursor()
            cursor.execute(question.format(load.table))
            return int(cursor.fetchall()[0][0])

        _until(lambda: asked(_ANY) == 1, check)
        begun, first = time.monotonic(), asked(_COUNT)
        _until(lambda: asked(_ABOUT) >= load.records - _NEAR_END, check)
        _until(lambda: asked(_COUNT) >= load.records, check)
        return {"steady_seconds": round(time.monotonic() - begun, 2), "steady_rows": load.records - first}


def wait_for_last_records(load: Load, params: dict[str, Any], check: Callable[[], None]) -> dict[str, float]:
    """Waits until the last record of every partition is in a table with a row a key, where rows cannot be counted.

    A sink writes the records of a partition in their order, so all of them are there by then.

    Returns:
        ``steady_seconds`` from the first record seen to the last, and ``steady_rows``, the records in between, which
        are all: the few that came before the first look are not left out.

    Raises:
        ContenderError: It took an hour.
    """
    with closing(psycopg2.connect(**params)) as connection, closing(new_consumer(load, "bench-arrivals")) as consumer:
        connection.autocommit = True
        last = {partition: high - 1 for partition, (_, high) in bounds(consumer, load).items()}

        def missing() -> int:
            cursor = connection.cursor()
            cursor.execute(f"SELECT kafka_partition, max(kafka_offset) FROM public.{load.table} GROUP BY 1")
            found = dict(cursor.fetchall())
            return sum(found.get(partition, -1) < offset for partition, offset in last.items())

        def written() -> bool:
            cursor = connection.cursor()
            cursor.execute(f"SELECT EXISTS (SELECT FROM public.{load.table} WHERE kafka_offset >= 0)")
            return bool(cursor.fetchall()[0][0])

        _until(written, check)
        begun = time.monotonic()
        _until(lambda: missing() == 0, check, poll_seconds=1.0)
        return {"steady_seconds": round(time.monotonic() - begun, 2), "steady_rows": load.records}


def _until(reached: Callable[[], bool], check: Callable[[], None], *, poll_seconds: float = _POLL_SECONDS) -> None:
    begun = checked = time.monotonic()
    while not reached():
        now = time.monotonic()
        if now > begun + _LONGEST_SECONDS:
            raise ContenderError(f"not all rows came in {_LONGEST_SECONDS:.0f} s")
        if now > checked + _CHECK_SECONDS:
            check()
            checked = now
        time.sleep(poll_seconds)
