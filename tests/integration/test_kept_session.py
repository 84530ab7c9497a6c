"""One connection for several uses, on a real server."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import Any

import psycopg2
import pytest

from kafka_ingest.postgres import database as postgres_sessions
from kafka_ingest.postgres.database import KeptSession
from tests.deadlines import until


def backend(session: KeptSession) -> int:
    """Uses the session; gives the pid of the server process behind it."""
    with session.use("test kept session") as connection:
        connection.commit()
        return connection.info.backend_pid


def is_alive(params: Mapping[str, Any], pid: int) -> bool:
    with closing(psycopg2.connect(**params)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_stat_activity WHERE pid = %s", (pid,))
        return bool(cursor.rowcount)


def test_uses_that_follow_each_other_share_a_connection(database: dict[str, Any]) -> None:
    session = KeptSession(database)
    assert backend(session) == backend(session)


def test_a_connection_that_the_server_has_ended_is_opened_anew(database: dict[str, Any]) -> None:
    session = KeptSession(database)
    first = backend(session)
    with closing(psycopg2.connect(**database)) as other, other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", (first,))
    until(lambda: not is_alive(database, first), "the server has ended the connection")
    assert backend(session) != first


def test_a_connection_that_was_idle_for_long_is_opened_anew(
    database: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = KeptSession(database)
    first = backend(session)
    monkeypatch.setattr(postgres_sessions, "_LONGEST_IDLE_SECONDS", -1.0)
    assert backend(session) != first


def test_a_process_with_thousands_of_open_files_keeps_its_connection(database: dict[str, Any]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = 2_000
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, many + 1_000), hard))
    with ExitStack() as files:
        for _ in range(many):
            files.callback(os.close, os.dup(0))
        session = KeptSession(database)
        assert backend(session) == backend(session)


def test_a_use_that_fails_closes_its_connection(database: dict[str, Any]) -> None:
    session = KeptSession(database)
    first = backend(session)
    with pytest.raises(ZeroDivisionError), session.use("test kept session"):
        raise ZeroDivisionError
    assert backend(session) != first


def test_nothing_stays_open_when_the_session_is_forgotten(database: dict[str, Any]) -> None:
    session = KeptSession(database)
    pid = backend(session)
    del session
    until(lambda: not is_alive(database, pid), "the connection is closed")
