"""Where adapters get their connections from: a new one for each use, or one that is kept for the next use.

Opening a connection takes longer than most of what the ledger does with it, and the first statements in it as well: the
server reads its catalog anew. A plan has three uses one after another, so it keeps one.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Protocol

from kafka_ingest.adapters.postgres_connection import Connection, connect

#: After this long without a use it is opened anew: firewalls and poolers drop idle connections without a word.
_LONGEST_IDLE_SECONDS = 10.0


class Sessions(Protocol):
    """Gives connections, each to one user at a time."""

    def use(self, application_name: str) -> AbstractContextManager[Connection]:
        """Gives a connection without an open transaction; the user leaves it like that.

        Raises:
            DatabaseUnavailable: No read-write server answers.
            ConfigError: The server refuses the role, the password or the database.
        """


class NewSessions:
    """Opens a connection for each use: safe to use from several threads.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; secrets stay in here.
    """

    def __init__(self, params: Mapping[str, object]) -> None:
        self._params = params

    @contextmanager
    def use(self, application_name: str) -> Iterator[Connection]:
        """Opens a connection and closes it at the end."""
        with closing(connect(self._params, application_name=application_name)) as connection:
            yield connection


class KeptSession:
    """Keeps one connection between uses that follow each other closely; for one thread.

    The connection keeps the application name of the first use. It is closed when a use fails, and with this object.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; secrets stay in here.
    """

    def __init__(self, params: Mapping[str, object]) -> None:
        self._params = params
        self._kept: Connection | None = None
        self._idle_since = 0.0

    @contextmanager
    def use(self, application_name: str) -> Iterator[Connection]:
        """Gives the kept connection while it is fresh, otherwise a new one."""
        connection = self._fresh() or connect(self._params, application_name=application_name)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._kept, self._idle_since = connection, time.monotonic()

    def _fresh(self) -> Connection | None:
        kept, self._kept = self._kept, None
        if kept is None:
            return None
        if time.monotonic() - self._idle_since > _LONGEST_IDLE_SECONDS or _has_ended(kept):
            kept.close()
            return None
        return kept


def _has_ended(connection: Connection) -> bool:
    """Whether the server has said something to an idle connection: that it closes it, whatever the reason."""
    readable, _, _ = select.select([connection.fileno()], [], [], 0)
    return bool(readable)
