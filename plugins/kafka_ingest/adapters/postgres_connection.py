"""Connections and transactions: the same settings everywhere, and only such as a transaction-mode pooler keeps.

No session ``SET`` and no ``options``: a pooler ignores the second and lets the first leak into other clients
(PgBouncer, ``pool_mode=transaction``). Every setting is ``SET LOCAL`` in its transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812 (a class with a small letter)
from psycopg2.extensions import cursor as Cursor  # noqa: N812

from kafka_ingest.adapters.postgres_faults import (
    MIGRATE,
    database_faults,
    ingest_error,
    is_connection_trouble,
    server_message,
    without_secrets,
)

__all__ = [
    "MIGRATE",
    "Connection",
    "Cursor",
    "TransactionLimits",
    "begin",
    "connect",
    "database_faults",
    "ingest_error",
    "is_connection_trouble",
    "server_message",
    "transaction",
]

#: A silent peer is noticed after about a minute: 30 s idle, three probes 10 s apart; the same for unanswered data.
_NETWORK_DEFAULTS: dict[str, object] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    "client_encoding": "UTF8",
}


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """How long a transaction waits before the server ends it.

    Attributes:
        lock_timeout_seconds: For each lock. 10 s outlasts every short transaction of the ledger.
        idle_timeout_seconds: Between two statements: a dead client's locks are free after this.
        statement_timeout_seconds: For each statement; ``None`` leaves the role's own setting.
        is_snapshot: ``REPEATABLE READ READ ONLY``: all statements see the database at one moment.
    """

    lock_timeout_seconds: float = 10
    idle_timeout_seconds: float = 60
    statement_timeout_seconds: float | None = None
    is_snapshot: bool = False


SHORT_TRANSACTION = TransactionLimits()
SNAPSHOT = TransactionLimits(is_snapshot=True)


def connect(params: Mapping[str, object], *, application_name: str, read_only: bool = False) -> Connection:
    """Opens a connection, autocommit off.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; they win over the defaults of this module.
        application_name: Shown in ``pg_stat_activity``.
        read_only: A standby will do; otherwise only a read-write server is accepted.

    Raises:
        DatabaseUnavailable: No server answers, or none that is read-write.
        ConfigError: The server refuses the role, the password or the database.
    """
    wanted: dict[str, Any] = {**_NETWORK_DEFAULTS, "application_name": application_name, **params}
    if not read_only:
        wanted["target_session_attrs"] = "read-write"
    try:
        connection: Connection = psycopg2.connect(**wanted)
    except psycopg2.Error as error:
        fault = ingest_error(error, "connect to the target database")
        if fault is None:
            raise
        fault.found = without_secrets(fault.found, params)
        raise fault from None
    return connection


#: One request for all. The isolation level is first, as PostgreSQL asks. A server notices within 5 s that the client of
#: a long statement is gone: PostgreSQL 14+, where the platform can tell (docs: "currently available only on systems
#: that support POLLRDHUP"; elsewhere setting it is an error).
_BEGIN = """
SET TRANSACTION ISOLATION LEVEL {isolation};
SELECT set_config(name, value, true) FROM unnest(%s::text[], %s::text[]) AS setting (name, value);
SELECT set_config('client_connection_check_interval', '5s', true)
 WHERE current_setting('client_connection_check_interval', true) IS NOT NULL AND version() LIKE '%%linux%%'
"""


def begin(cursor: Cursor, limits: TransactionLimits = SHORT_TRANSACTION) -> None:
    """Begins a transaction with its limits and UTC."""
    settings = {
        "TimeZone": "UTC",
        "lock_timeout": f"{limits.lock_timeout_seconds * 1000:.0f}ms",
        "idle_in_transaction_session_timeout": f"{limits.idle_timeout_seconds * 1000:.0f}ms",
    }
    if limits.statement_timeout_seconds is not None:
        settings["statement_timeout"] = f"{limits.statement_timeout_seconds * 1000:.0f}ms"
    isolation = "REPEATABLE READ READ ONLY" if limits.is_snapshot else "READ COMMITTED"
    cursor.execute(_BEGIN.format(isolation=isolation), (list(settings), list(settings.values())))


@contextmanager
def transaction(connection: Connection, limits: TransactionLimits = SHORT_TRANSACTION) -> Iterator[Cursor]:
    """Runs one transaction: commits when the block ends, rolls back when it raises.

    Durable on return. psycopg2's errors pass through: wrap with :func:`database_faults`.
    """
    try:
        with connection.cursor() as cursor:
            begin(cursor, limits)
            yield cursor
        connection.commit()
    except BaseException:
        if not connection.closed:
            connection.rollback()
        raise
