"""Waiting for rows that somebody else writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg2

from tests.benchmarks.load import Load
from tests.benchmarks.peers.contender import ContenderError

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


def _until(reached: Callable[[], bool], check: Callable[[], None]) -> None:
    begun = checked = time.monotonic()
    while not reached():
        now = time.monotonic()
        if now > begun + _LONGEST_SECONDS:
            raise ContenderError(f"not all rows came in {_LONGEST_SECONDS:.0f} s")
        if now > checked + _CHECK_SECONDS:
            check()
            checked = now
        time.sleep(_POLL_SECONDS)
