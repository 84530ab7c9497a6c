"""Connections, transactions, sessions and the SQL files."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from tempfile import mkstemp
from types import NoneType
from typing import Any, Protocol

import psycopg2
from psycopg2 import errorcodes, sql
from psycopg2.extensions import TRANSACTION_STATUS_INERROR, TRANSACTION_STATUS_INTRANS
from psycopg2.extensions import connection as Connection  # noqa: N812 (a class with a small letter)
from psycopg2.extensions import cursor as Cursor  # noqa: N812

from kafka_ingest.column_types import quoted_element
from kafka_ingest.connections import PEM_PARAMETERS, is_pem
from kafka_ingest.errors import ConfigError, IngestError
from kafka_ingest.postgres.faults import (
    MIGRATE,
    CommitAnswerLost,
    CommitRefused,
    connection_fault,
    database_faults,
    ingest_error,
    is_connection_trouble,
    refused,
    server_message,
    whole_message,
    without_secrets,
)

__all__ = [
    "MIGRATE",
    "Connection",
    "Cursor",
    "TransactionLimits",
    "begin",
    "commit",
    "connect",
    "database_faults",
    "ingest_error",
    "is_connection_trouble",
    "refused",
    "server_message",
    "transaction",
    "whole_message",
]


# ----------
# The project's SQL: one statement a file, called by name.
#
# A wheel or the job's zip carries the files inside the package (``kafka_ingest/sql``); in a checkout they are in
# ``sql/`` at the top.


@cache
def _root() -> Traversable:
    packaged = files("kafka_ingest").joinpath("sql")
    if packaged.is_dir():
        return packaged
    return Path(__file__).resolve().parents[3] / "sql"


@cache
def sql_text(name: str) -> str:
    """Return the text of an SQL file.

    Args:
        name: Path below ``sql/`` without ``.sql``, such as ``queries/claim_batch``.

    Raises:
        FileNotFoundError: There is no such file: the package is not complete.
    """
    return _root().joinpath(*f"{name}.sql".split("/")).read_text(encoding="utf-8")


def sql_names(folder: str) -> list[str]:
    """List the SQL files of a folder in the order of their names, without ``.sql``."""
    names = [entry.name for entry in _root().joinpath(folder).iterdir()]
    return sorted(name.removesuffix(".sql") for name in names if name.endswith(".sql"))


Row = dict[str, Any]
Identifiers = Mapping[str, sql.Composable]


def query_with_identifiers(name: str, **identifiers: sql.Composable) -> sql.Composed:
    """Return the statement of an SQL file with its ``{identifiers}`` filled in; ``name`` is the path below ``sql/``."""
    return sql.SQL(sql_text(name)).format(**identifiers)


def run_query(cursor: Cursor, name: str, identifiers: Identifiers | None = None, /, **parameters: object) -> int:
    """Run ``sql/queries/<name>.sql``; return the number of rows that it touched or returned.

    Args:
        cursor: A transaction.
        name: Name of the statement.
        identifiers: What its ``{names}`` stand for.
        parameters: What its ``%(names)s`` stand for. A list becomes an array, whose type the statement names
            (``%(offsets)s::bigint[]``).
    """
    values = {key: _array(value) if isinstance(value, list) else value for key, value in parameters.items()}
    if identifiers is None:
        cursor.execute(sql_text(f"queries/{name}"), values)
    else:
        # Without values psycopg2 looks for no placeholder: an identifier may hold a "%".
        cursor.execute(query_with_identifiers(f"queries/{name}", **identifiers), values or None)
    return int(cursor.rowcount)


def _array(elements: list[Any]) -> str:
    """Return an array as PostgreSQL writes it (documentation, 8.15.6 Array Input and Output Syntax).

    psycopg2 would send an expression, ``ARRAY['…'::timestamptz, …]``, which both sides handle element by element: for
    the thousands of partitions that a plan stores it took three times as long.
    """
    written = {element: _ELEMENTS[type(element)](element) for element in set(elements)}  # few differ in most columns
    return "{" + ",".join([written[element] for element in elements]) + "}"


#: How an element of an array is written, by its type; another type is an error.
_ELEMENTS: Mapping[type, Callable[[Any], str]] = {
    NoneType: lambda _: "NULL",
    bool: str,
    int: str,
    str: lambda text: quoted_element(text.encode()).decode(),
    datetime: lambda time: f'"{time.isoformat()}"',
}


def fetch_rows(cursor: Cursor, name: str, identifiers: Identifiers | None = None, /, **parameters: object) -> list[Row]:
    """Run ``sql/queries/<name>.sql`` as :func:`run_query` does; return its rows by column name."""
    run_query(cursor, name, identifiers, **parameters)
    return rows_of(cursor)


def fetch_row(cursor: Cursor, name: str, identifiers: Identifiers | None = None, /, **parameters: object) -> Row | None:
    """Run ``sql/queries/<name>.sql`` as :func:`run_query` does; return its first row, or ``None``."""
    rows = fetch_rows(cursor, name, identifiers, **parameters)
    return rows[0] if rows else None


def rows_of(cursor: Cursor, at_most: int | None = None) -> list[Row]:
    """Return the rows that the last statement returned, by column name."""
    names = [column.name for column in cursor.description or ()]
    rows = cursor.fetchall() if at_most is None else cursor.fetchmany(at_most)
    return [dict(zip(names, row, strict=True)) for row in rows]


# ----------
# Connections and transactions: the same settings everywhere, and only those that a transaction-mode pooler keeps.
#
# No session ``SET`` and no ``options``: a pooler ignores the second and lets the first leak into other clients
# (PgBouncer, ``pool_mode=transaction``). Every setting is ``SET LOCAL`` in its transaction.

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
        idle_timeout_seconds: Between two statements: locks of a dead client are free after this time.
        is_snapshot: ``REPEATABLE READ READ ONLY``: all statements see the database at one moment.
        statement_timeout_seconds: For each statement; 0: a large batch takes its time, ``lock_timeout`` bounds the
            waiting.
    """

    lock_timeout_seconds: float = 10
    idle_timeout_seconds: float = 60
    is_snapshot: bool = False
    statement_timeout_seconds: float = 0


SHORT_TRANSACTION = TransactionLimits()
SNAPSHOT = TransactionLimits(is_snapshot=True)


def connect(params: Mapping[str, object], *, application_name: str, read_only: bool = False) -> Connection:
    """Open a connection; :func:`transaction` begins and ends what runs on it.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; they win over the defaults of this module.
        application_name: Shown in ``pg_stat_activity``.
        read_only: A standby is enough; otherwise only a read-write server is accepted.

    Raises:
        DatabaseUnavailable: No server answers, or none that is read-write.
        ConfigError: The server refuses the role, the password or the database, or a certificate or key cannot be used.
    """
    wanted: dict[str, Any] = {**_NETWORK_DEFAULTS, "application_name": application_name, **params}
    if not read_only:
        wanted["target_session_attrs"] = "read-write"
    _require_files(params)
    with _texts_as_files(params) as paths:
        try:
            connection: Connection = psycopg2.connect(**{**wanted, **paths})
        except psycopg2.Error as error:
            raise _connection_error(error, params, paths) from None
    return connection


def _connection_error(error: psycopg2.Error, params: Mapping[str, object], paths: Mapping[str, str]) -> IngestError:
    found = whole_message(error)
    cls, next_command = connection_fault(found, params)
    for name, path in paths.items():
        found = found.replace(f'file "{path}"', f"of the text in {name}")
    if any(name in params for name in PEM_PARAMETERS):
        found += f" (on {socket.gethostname()})"
    return cls(_could_not_connect(params), found=without_secrets(found, params), next_command=next_command)


def _could_not_connect(params: Mapping[str, object]) -> str:
    conn_id = params.get("fallback_application_name")  # connections.py
    return "could not connect to the target database" + (f" by the Airflow connection {conn_id}" if conn_id else "")


# libpq takes certificates and keys as files only (PostgreSQL 18, "Parameter Key Words"). Their texts reach every task
# without a file, and become one for the moment in which libpq connects: it reads them then, and never again.


@contextmanager
def _texts_as_files(params: Mapping[str, object]) -> Iterator[Mapping[str, str]]:
    """Yield the paths of files with the PEM texts among the parameters, by parameter; they go when the block ends."""
    texts = {name: str(params[name]) for name in PEM_PARAMETERS if is_pem(params.get(name))}
    with ExitStack() as stack:
        yield {name: stack.enter_context(_file_of(text)) for name, text in texts.items()}


@contextmanager
def _file_of(text: str) -> Iterator[str]:
    """Yield the path of a file that only this user may read, as libpq wants keys to be.

    It is in memory and in no folder; where a system has no such files, or forbids them, in the temporary folder.
    """
    with ExitStack() as stack:
        try:
            descriptor = os.memfd_create("kafka_ingest")
        except (AttributeError, OSError):
            descriptor, path = mkstemp(prefix="kafka_ingest_")
            stack.callback(os.unlink, path)
        else:
            os.fchmod(descriptor, 0o600)
            path = f"/proc/self/fd/{descriptor}"
        stack.callback(os.close, descriptor)
        os.write(descriptor, text.encode())
        yield path


def _require_files(params: Mapping[str, object]) -> None:
    """Check the files of certificates and keys: libpq goes on without a certificate or revocation list that is missing.

    For the password of a key it would ask at a terminal.

    Raises:
        ConfigError: All that cannot be used on this machine.
    """
    faults = [fault for name in PEM_PARAMETERS if (fault := _file_fault(name, params))]
    if faults:
        raise ConfigError(
            _could_not_connect(params),
            expected="files of certificates and keys that can be read where they are used, or PEM texts in their place",
            found=f"{'; '.join(faults)} (on {socket.gethostname()})",
            next_command="correct the connection's extra, or put the files wherever Airflow's and Spark's tasks run; "
            "then: python -m kafka_ingest preflight",
        )


def _file_fault(name: str, params: Mapping[str, object]) -> str:
    value = str(params.get(name) or "")
    is_in_engine = name == "sslkey" and ":" in value and not is_pem(value)
    if not value or is_in_engine or (name, value) == ("sslrootcert", "system"):
        return ""
    try:
        text = value if is_pem(value) else Path(value).read_text(encoding="latin-1")
    except OSError as error:
        return f"{name}: {value}: {error.strerror}"
    if name == "sslkey" and "ENCRYPTED" in text and not params.get("sslpassword"):
        return "sslkey is encrypted, and there is no sslpassword"
    return ""


@dataclass(frozen=True, slots=True)
class SessionSetting:
    """A setting of role, database or server that our statements depend on.

    Attributes:
        name: Name of the setting; a server that does not know it keeps its own behaviour.
        value: What every transaction sets.
        why: What would happen with another value.
        replaces: The only value that is replaced; ``None`` replaces any other.
    """

    name: str
    value: str
    why: str
    replaces: str | None = None


#: Set LOCAL in every transaction, where the session has another value. https://www.postgresql.org/docs/18/runtime-config-client.html
SESSION_SETTINGS: tuple[SessionSetting, ...] = (
    SessionSetting("TimeZone", "UTC", "times without an offset would be read and written in the role's zone"),
    SessionSetting("DateStyle", "ISO, MDY", "psycopg2 reads ISO only"),
    SessionSetting("IntervalStyle", "postgres", "psycopg2 reads this style only"),
    SessionSetting("extra_float_digits", "1", "below 1 a float is written with fewer digits than it has"),
    SessionSetting("bytea_output", "hex", "one spelling of bytes wherever the server writes them as text"),
    SessionSetting("array_nulls", "on", "off reads NULL in an array as the text NULL"),
    SessionSetting("quote_all_identifiers", "off", "on writes types and expressions of the catalog in another way"),
    SessionSetting("row_security", "on", "off refuses a table whose policies let us see every row"),
    SessionSetting("default_table_access_method", "heap", "others have no unlogged tables, or lock no rows"),
    SessionSetting("synchronous_commit", "on", "off says COMMIT before it is durable; a crash takes it back", "off"),
    SessionSetting("session_replication_role", "origin", "replica skips triggers and foreign keys"),
    SessionSetting("zero_damaged_pages", "off", "on takes damaged pages for empty ones"),
    SessionSetting("ignore_checksum_failure", "off", "on goes on with damaged pages"),
    SessionSetting("gin_fuzzy_search_limit", "0", "a limit makes a search by a GIN index find a part of the rows only"),
    SessionSetting("exit_on_error", "off", "on ends the session at the first row that is refused"),
    SessionSetting("client_min_messages", "warning", "debug levels send lines for every statement"),
    SessionSetting("transaction_timeout", "0", "a large batch takes its time; PostgreSQL 17+"),
    # A server notices within this time that the client of a long statement is gone: PostgreSQL 14+.
    SessionSetting("client_connection_check_interval", "5s", "a dead client's statement would go on"),
)

#: set_for_transaction.sql sets client_connection_check_interval only where the platform can tell that a client is gone
#: (docs: "currently available only on systems that support POLLRDHUP"; elsewhere setting it is an error).
_BEGIN = "BEGIN ISOLATION LEVEL {isolation}, NOT DEFERRABLE;\n"


def begin(cursor: Cursor, limits: TransactionLimits = SHORT_TRANSACTION) -> None:
    """Begin a transaction with its limits and :data:`SESSION_SETTINGS`, in one request."""
    # psycopg2 sends no BEGIN and no COMMIT of its own: it would not show what the server answers to them.
    if not cursor.connection.autocommit:
        cursor.connection.autocommit = True
    settings = [
        *SESSION_SETTINGS,
        SessionSetting("lock_timeout", _milliseconds(limits.lock_timeout_seconds), "as the caller says"),
        SessionSetting(
            "idle_in_transaction_session_timeout", _milliseconds(limits.idle_timeout_seconds), "as the caller says"
        ),
        SessionSetting("statement_timeout", _milliseconds(limits.statement_timeout_seconds), "as the caller says"),
    ]
    isolation = "REPEATABLE READ READ ONLY" if limits.is_snapshot else "READ COMMITTED"
    cursor.execute(
        _BEGIN.format(isolation=isolation) + sql_text("queries/set_for_transaction"),
        {
            "names": [setting.name for setting in settings],
            "values": [setting.value for setting in settings],
            "replaced": [setting.replaces for setting in settings],
        },
    )


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms"


def set_lock_timeout(cursor: Cursor, seconds: float) -> None:
    """Let the statements from here on wait so long for a lock, to the end of the transaction."""
    run_query(cursor, "set_lock_timeout", milliseconds=round(seconds * 1_000))


def commit(cursor: Cursor) -> None:
    """Commit, and believe it only when the server has answered COMMIT. Durable on return.

    The one place that commits: plan, change, roll-back and publish all end here, as whatever else writes. What is
    believed when:

    * The answer COMMIT: it is committed. PostgreSQL answers ROLLBACK, without an error, to the COMMIT of a transaction
      that has failed (https://www.postgresql.org/docs/18/sql-commit.html), and psycopg2's ``commit()`` takes that for
      success.
    * Any other answer, or no open transaction to begin with: it is not committed.
    * An ERROR on a connection that lives, as of a deferred constraint: it is not committed.
    * FATAL or PANIC, a connection that broke, or a server that says that it does not know: unknown. A publish asks with
      a locking read (``Ledger.settle``); a plan, change or roll-back is asked for again by its request, which finds
      what was recorded, or does it.

    Raises:
        CommitRefused: The server did not commit.
        CommitAnswerLost: The answer did not come: the server may have committed or not.
        psycopg2.Error: The server refused COMMIT, for example by a deferred constraint; it did not commit.
    """
    # Outside a transaction PostgreSQL answers COMMIT, with only a warning.
    if cursor.connection.info.transaction_status not in (TRANSACTION_STATUS_INTRANS, TRANSACTION_STATUS_INERROR):
        raise CommitRefused("there is no transaction, or no connection, any more")
    try:
        cursor.execute("COMMIT")
    except psycopg2.Error as error:
        if _is_outcome_unknown(cursor.connection, error):
            raise CommitAnswerLost(server_message(error)) from error
        raise
    if cursor.statusmessage != "COMMIT":
        raise CommitRefused(f"the server answered {cursor.statusmessage} to COMMIT")


#: The server itself says that it does not know: https://www.postgresql.org/docs/18/errcodes-appendix.html.
_UNKNOWN_OUTCOME = (None, errorcodes.STATEMENT_COMPLETION_UNKNOWN, errorcodes.TRANSACTION_RESOLUTION_UNKNOWN)


def _is_outcome_unknown(connection: Connection, error: psycopg2.Error) -> bool:
    """Tell whether a failed COMMIT may have committed: not after an ERROR on a connection that is still alive."""
    if error.pgcode in _UNKNOWN_OUTCOME:
        return True
    return bool(connection.closed) or error.diag.severity_nonlocalized in ("FATAL", "PANIC")


def _roll_back(cursor: Cursor) -> None:
    if cursor.connection.info.transaction_status in (TRANSACTION_STATUS_INTRANS, TRANSACTION_STATUS_INERROR):
        cursor.execute("ROLLBACK")


@contextmanager
def transaction(connection: Connection, limits: TransactionLimits = SHORT_TRANSACTION) -> Iterator[Cursor]:
    """Run one transaction: commit when the block ends, roll back when it raises.

    Durable on return. psycopg2's errors pass through, also those of :func:`commit`: wrap with :func:`database_faults`.
    """
    with connection.cursor() as cursor:
        try:
            begin(cursor, limits)
            yield cursor
            commit(cursor)
        except BaseException:
            _roll_back(cursor)
            raise


# ----------
# Connections for one use each, or one that is kept for the next use.
#
# Opening a connection takes longer than most of what the ledger does with it. So do its first statements: the server
# reads its catalog anew. A plan has three uses one after another, so it keeps one.

#: After this time without a use the connection is opened anew: firewalls and poolers silently drop idle ones.
_LONGEST_IDLE_SECONDS = 10.0


class Sessions(Protocol):
    """A source of connections, each for one user at a time."""

    def use(
        self, application_name: str, *, connect_timeout_seconds: int | None = None
    ) -> AbstractContextManager[Connection]:
        """Return a connection without an open transaction; the user must leave it without one.

        Args:
            application_name: What the server shows of it.
            connect_timeout_seconds: How long a new one may take; by default what its parameters say.

        Raises:
            DatabaseUnavailable: No read-write server answers.
            ConfigError: The server refuses the role, the password or the database.
        """


class NewSessions:
    """A new connection for each use: safe to use from several threads.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; secrets stay in here.
    """

    def __init__(self, params: Mapping[str, object]) -> None:
        self._params = params

    @contextmanager
    def use(self, application_name: str, *, connect_timeout_seconds: int | None = None) -> Iterator[Connection]:
        """Open a connection and close it at the end."""
        with closing(_connected(self._params, application_name, connect_timeout_seconds)) as connection:
            yield connection


class KeptSession:
    """One connection, kept between uses that follow each other closely; for one thread.

    The connection keeps the application name of the first use. It is closed when a use fails, and with this object.

    Args:
        params: Keyword arguments of ``psycopg2.connect``; secrets stay in here.
    """

    def __init__(self, params: Mapping[str, object]) -> None:
        self._params = params
        self._kept: Connection | None = None
        self._idle_since = 0.0

    @contextmanager
    def use(self, application_name: str, *, connect_timeout_seconds: int | None = None) -> Iterator[Connection]:
        """Yield the kept connection while it is fresh, otherwise a new one."""
        connection = self._fresh() or _connected(self._params, application_name, connect_timeout_seconds)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._kept, self._idle_since = connection, time.monotonic()

    def close(self) -> None:
        """Close the kept connection, before a time without uses; the next use opens another one."""
        kept, self._kept = self._kept, None
        if kept:
            kept.close()

    def _fresh(self) -> Connection | None:
        kept, self._kept = self._kept, None
        if kept is None:
            return None
        if time.monotonic() - self._idle_since > _LONGEST_IDLE_SECONDS or _has_ended(kept):
            kept.close()
            return None
        return kept


def _connected(params: Mapping[str, object], application_name: str, timeout_seconds: int | None) -> Connection:
    timeout = {} if timeout_seconds is None else {"connect_timeout": timeout_seconds}
    return connect({**timeout, **params}, application_name=application_name)


def _has_ended(connection: Connection) -> bool:
    """Tell whether the server has sent something to an idle connection: that it closes it, for whatever reason."""
    poll = select.poll()  # select() takes no file descriptor above 1,023
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
