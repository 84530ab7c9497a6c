"""Turns what PostgreSQL says into the errors of this package: the family decides about retry.

SQLSTATE classes: https://www.postgresql.org/docs/18/errcodes-appendix.html. Messages carry the server's primary
message, never its detail: a detail can quote a whole row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg2
from psycopg2 import errorcodes

from kafka_ingest.core.errors import (
    ConfigError,
    DatabaseUnavailable,
    IngestError,
    LedgerOutdated,
    LockTimeout,
    RetryLater,
)
from kafka_ingest.core.secret_texts import scrubbed, secret_values

MIGRATE = "python -m kafka_ingest migrate"

#: 08 connection, 53 out of resources (disk, memory, connections), 58 system error.
_UNAVAILABLE_CLASSES = {"08", "53", "58"}
_UNAVAILABLE = {
    errorcodes.ADMIN_SHUTDOWN,
    errorcodes.CRASH_SHUTDOWN,
    errorcodes.CANNOT_CONNECT_NOW,
    errorcodes.DATABASE_DROPPED,
    errorcodes.IDLE_SESSION_TIMEOUT,
    errorcodes.IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    errorcodes.READ_ONLY_SQL_TRANSACTION,  # a standby, or a primary that lost its role
}
#: A file-size limit (EFBIG) or a disk quota (EDQUOT) comes as an internal error, unlike a full disk (53100):
#: errcode_for_file_access in elog.c, PostgreSQL 18; told by md.c and fd.c.
_NO_ROOM = re.compile(r"could not (extend|write( to)?) file")
_LOCK_TIMEOUTS = {errorcodes.LOCK_NOT_AVAILABLE, errorcodes.DEADLOCK_DETECTED}
_MISSING = {errorcodes.UNDEFINED_TABLE, errorcodes.INVALID_SCHEMA_NAME, errorcodes.UNDEFINED_FUNCTION}

#: libpq gives no SQLSTATE when connecting fails, only the server's words (in English unless lc_messages differs).
_REFUSED = re.compile(
    r"password authentication failed|no pg_hba\.conf entry|database \".*\" does not exist|role \".*\" does not exist"
    r"|no password supplied|server does not support SSL|certificate verify failed|invalid (connection|sslmode|port)"
)
_PLAIN = psycopg2.DatabaseError
_LEDGER_OBJECT = re.compile(r"\bkafka_ingest(\.|\")")


def server_message(error: psycopg2.Error) -> str:
    """Gives the server's primary message, or libpq's text, on one line and without details."""
    text = error.diag.message_primary or str(error)
    return " ".join(text.split())


def is_connection_trouble(error: psycopg2.Error) -> bool:
    """Whether the connection or the server is the fault, not the statement."""
    code = error.pgcode
    if code:
        is_out_of_room = code == errorcodes.INTERNAL_ERROR and bool(_NO_ROOM.match(server_message(error)))
        return code[:2] in _UNAVAILABLE_CLASSES or code in _UNAVAILABLE or is_out_of_room
    # psycopg2 raises its plain DatabaseError where libpq lost the connection in the middle of a result.
    return isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError) or type(error) is _PLAIN


def ingest_error(
    error: psycopg2.Error, doing: str, *, pipeline: str | None = None, batch_id: str | None = None
) -> IngestError | None:
    """Gives the error of this package that ``error`` means; ``None`` when it is no expected fault.

    Args:
        error: What psycopg2 raised.
        doing: What was being done, as in "could not <doing>".
        pipeline: Pipeline, where known.
        batch_id: Batch, where known.
    """
    found = server_message(error)
    if (fault := _expected_fault(error, found)) is None:
        return None
    cls, next_command = fault
    return cls(f"could not {doing}", found=found, next_command=next_command, pipeline=pipeline, batch_id=batch_id)


def _expected_fault(error: psycopg2.Error, found: str) -> tuple[type[IngestError], str] | None:
    code = error.pgcode or ""
    if is_connection_trouble(error):
        return _connection_fault(found)
    if code in _LOCK_TIMEOUTS:
        return LockTimeout, "try again; pg_locks and pg_stat_activity show who holds the lock"
    if code in (errorcodes.SERIALIZATION_FAILURE, errorcodes.QUERY_CANCELED):
        return RetryLater, "try again; a statement_timeout of the role may be too short"
    if code in _MISSING and _LEDGER_OBJECT.search(found):
        return LedgerOutdated, MIGRATE
    if code == errorcodes.INSUFFICIENT_PRIVILEGE:
        return ConfigError, _grant(found)
    return None


def _connection_fault(found: str) -> tuple[type[IngestError], str]:
    if _REFUSED.search(found):
        return ConfigError, "correct the connection to the target database"
    return DatabaseUnavailable, "try again; if it stays, check that a read-write server can be reached and has room"


def _grant(found: str) -> str:
    if match := re.search(r"for (database|schema) (\S+)", found):
        privileges = "CREATE" if match[1] == "database" else "USAGE, CREATE"
        return f"GRANT {privileges} ON {match[1].upper()} {match[2]} TO the role of the connection"
    if match := re.search(r"for (table|view|relation) (\S+)", found):
        return f"GRANT SELECT, INSERT, UPDATE, DELETE ON {match[2]} TO the role of the connection"
    if match := re.search(r"for sequence (\S+)", found):
        return f"GRANT USAGE ON SEQUENCE {match[1]} TO the role of the connection"
    return "let the owner grant it to the role of the connection, or connect as the owner"


@contextmanager
def database_faults(doing: str, *, pipeline: str | None = None, batch_id: str | None = None) -> Iterator[None]:
    """Raises what psycopg2 raises inside as the error of this package that it means.

    Connection trouble, shutdown, a full disk and a read-only server are ``DatabaseUnavailable``; a lock that is not
    granted is ``LockTimeout``; a missing ledger is ``LedgerOutdated``; a missing privilege is ``ConfigError`` with the
    GRANT. What is no expected fault is left as it is.

    Args:
        doing: What is being done, as in "could not <doing>".
        pipeline: Pipeline, where known.
        batch_id: Batch, where known.
    """
    try:
        yield
    except psycopg2.Error as error:
        fault = ingest_error(error, doing, pipeline=pipeline, batch_id=batch_id)
        if fault is None:
            raise
        raise fault from error


def without_secrets(text: str, params: Mapping[str, object]) -> str:
    """Blanks the secret values of connection parameters in a text."""
    whole = [str(params[name]) for name in ("dsn", "passfile") if params.get(name)]
    return scrubbed(text, [*whole, *secret_values(params)])
