"""PostgreSQL's errors as errors of this package: the family decides about retry.

SQLSTATE classes: https://www.postgresql.org/docs/18/errcodes-appendix.html. Messages carry the server's primary
message, never its detail: a detail can quote a whole row.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg2
from psycopg2 import errorcodes

from kafka_ingest.errors import (
    CommitDidNotHappen,
    CommitStateUnknown,
    ConfigError,
    DatabaseRefused,
    DatabaseUnavailable,
    IngestError,
    LedgerOutdated,
    LockTimeout,
    RetryLater,
)
from kafka_ingest.postgres.rights import LOAD_RIGHTS, ledger_rights
from kafka_ingest.protocol.target import quoted
from kafka_ingest.secrets import scrubbed, secret_values

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
#: errcode_for_file_access in elog.c, PostgreSQL 18; raised in md.c and fd.c.
_NO_ROOM = re.compile(r"could not (extend|write( to)?) file")
#: Passing faults: other transactions (40), an earlier fault that was swallowed (25). Other classes stay, except for
#: an object in use, an internal error such as "tuple concurrently updated". Damaged data (XX001, XX002) does not pass.
_PASSING_CLASSES = {"25", "40"}
_PASSING = {errorcodes.OBJECT_IN_USE, errorcodes.INTERNAL_ERROR}
_SCHEMA_RIGHTS = {"kafka_ingest": "USAGE", "kafka_ingest_staging": "USAGE, CREATE"}
_LOCK_TIMEOUTS = {errorcodes.LOCK_NOT_AVAILABLE, errorcodes.DEADLOCK_DETECTED}
_MISSING = {errorcodes.UNDEFINED_TABLE, errorcodes.INVALID_SCHEMA_NAME, errorcodes.UNDEFINED_FUNCTION}

#: libpq gives no SQLSTATE when connecting fails, only the server's words (in English unless lc_messages differs).
#: These pass by themselves: a server that starts, stops or is restarted, also while TLS or the login is negotiated.
_PASSES = re.compile(
    r"(?i)the database system is (starting up|shutting down|in recovery mode|not (yet )?accepting)"
    r"|connection reset|closed the connection unexpectedly|SSL SYSCALL error|too many (clients|connections)"
)
#: These stay until somebody changes the connection; by its parameter (libpq: fe-connect.c, fe-secure-openssl.c,
#: fe-auth.c; server: auth.c, postinit.c; PostgreSQL 18), with what to do.
_REFUSED: Mapping[str, str] = {
    r"does not match host name|host name must be specified for a verified SSL": (
        "set host to a name that the server's certificate holds, or add the name to the certificate"
    ),
    r"certificate verify failed": (
        "the server's certificate has expired, or is not of the authority in sslrootcert; this tells which: "
        "openssl s_client -starttls postgres -connect HOST:PORT -CAfile SSLROOTCERT"
    ),
    r"root certificate file|locate root certificate|weak sslmode": (
        "set sslrootcert to a file that exists wherever Airflow and Spark's tasks run, or use another sslmode"
    ),
    r"could not load private key file.*(bad decrypt|bad password|empty password)": (
        "correct sslpassword: it is the password of the key in sslkey"
    ),
    r"(certificate|private key) file|certificate does not match|could not load private key|but not private key": (
        "set sslcert and sslkey to a certificate and its key; the key may be read by its owner only"
    ),
    r"valid client certificate|certificate authentication failed|alert (unknown ca|.*certificate)": (
        "the server refuses the client's certificate: set sslcert and sslkey to one that it trusts, of this user"
    ),
    r"alert (handshake failure|protocol version)|unsupported protocol|wrong version number": (
        "client and server agree on no TLS: set sslcert and sslkey where the server asks for a certificate, "
        "or ssl_min_protocol_version and ssl_max_protocol_version to versions that it speaks"
    ),
    r"server does not support SSL": "set sslmode to one that the server offers",
    r"pg_hba\.conf (entry|rejects)": (
        "let the server's pg_hba.conf take this user, database and address, or set sslmode as it asks"
    ),
    r"invalid (\S+ value|connection option|port number|sslmode|port|dsn)|requirement failed|channel binding required": (
        "correct this parameter in the connection's extra or fields"
    ),
    r"\S+ authentication failed for user|no password supplied|role \".*\" (does not exist|is not permitted)": (
        "correct login and password of the connection; where the server's pg_hba.conf says clientcert=verify-full, "
        "sslcert must name this user, too"
    ),
    r"database \".*\" does not exist": "correct the schema of the connection: it is the name of the database",
    r"conversion between \S+ and \S+ is not supported": "load into a database in UTF8; MULE_INTERNAL cannot be used",
    r"permission denied for database": "GRANT CONNECT ON DATABASE {database} TO {role};",
}
_PLAIN = psycopg2.DatabaseError
_LEDGER_OBJECT = re.compile(r"\bkafka_ingest(\.|\")")

#: Class 22 quotes the wrong value in its primary message ('invalid input syntax for type integer: "…"').
_QUOTED_VALUE = re.compile(r"\".*\"", re.DOTALL)
#: For a character that an encoding does not have it quotes the bytes, and the encodings' names.
_QUOTED_BYTES = re.compile(r"0x[0-9a-f]{2}( 0x[0-9a-f]{2})*")
_ENCODING_FAULTS = {errorcodes.UNTRANSLATABLE_CHARACTER, errorcodes.CHARACTER_NOT_IN_REPERTOIRE}


class CommitRefused(psycopg2.DatabaseError):
    """The server did not commit, and said so without an error."""


class CommitAnswerLost(psycopg2.OperationalError):
    """COMMIT was sent, but its answer was lost: the server may have committed or not."""


def whole_message(error: psycopg2.Error) -> str:
    """Return the server's primary message, or libpq's text, on one line and without details; it can quote a value."""
    return " ".join((error.diag.message_primary or str(error)).split())


def server_message(error: psycopg2.Error) -> str:
    """Return the server's primary message, or libpq's text, on one line: neither details nor values of records.

    A message that a function of the target raises (P0001) is shown as its author wrote it.
    """
    message, code = whole_message(error), error.pgcode or ""
    if code in _ENCODING_FAULTS:
        return _QUOTED_BYTES.sub("…", message)
    return _QUOTED_VALUE.sub("…", message) if code.startswith("22") else message


def trace_without_payload(error: BaseException) -> str:
    """Format a trace with its causes; for a database error it shows only :func:`server_message`.

    The text of psycopg2's errors ends in DETAIL and CONTEXT, which can quote a whole row.
    """
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    text = server_message(error) if isinstance(error, psycopg2.Error) else str(error)
    return (
        (f"{trace_without_payload(before)}\nwhich led to:\n\n" if before else "")
        + "Traceback (most recent call last):\n"
        + "".join(traceback.format_tb(error.__traceback__))
        + f"{type(error).__module__}.{type(error).__qualname__}: {text}"
    )


def is_connection_trouble(error: psycopg2.Error) -> bool:
    """Tell whether the connection or the server is the fault, not the statement."""
    code = error.pgcode
    if code:
        is_out_of_room = code == errorcodes.INTERNAL_ERROR and bool(_NO_ROOM.match(server_message(error)))
        return code[:2] in _UNAVAILABLE_CLASSES or code in _UNAVAILABLE or is_out_of_room
    # psycopg2 raises its plain DatabaseError where libpq lost the connection in the middle of a result.
    return isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError) or type(error) is _PLAIN


def ingest_error(error: psycopg2.Error, doing: str) -> IngestError | None:
    """Return the error of this package that ``error`` means; ``None`` when it is no expected fault.

    Args:
        error: The error from psycopg2.
        doing: What was being done, as in "could not <doing>".
    """
    found = server_message(error)
    if (fault := _expected_fault(error, found)) is None:
        return None
    cls, next_command = fault
    return cls(f"could not {doing}", found=found, next_command=next_command)


def refused(error: psycopg2.Error, doing: str) -> IngestError:
    """Return the error of this package for any error of psycopg2: an expected fault, else ``DatabaseRefused``.

    Args:
        error: The error from psycopg2.
        doing: What was being done, as in "could not <doing>".
    """
    fault = ingest_error(error, doing)
    return fault or DatabaseRefused(
        f"could not {doing}: PostgreSQL refused it",
        found=f"{server_message(error)}" + (f" (SQLSTATE {error.pgcode})" if error.pgcode else ""),
        next_command="remove the cause, then the same again; nothing was committed",
    )


def _expected_fault(error: psycopg2.Error, found: str) -> tuple[type[IngestError], str] | None:
    if isinstance(error, CommitAnswerLost):
        return CommitStateUnknown, "the same again: it finds out what became of it, and does nothing twice"
    if isinstance(error, CommitRefused):
        return CommitDidNotHappen, "the same again: nothing was committed"
    if is_connection_trouble(error):
        return connection_fault(found)
    return _statement_fault(error.pgcode or "", found)


def _statement_fault(code: str, found: str) -> tuple[type[IngestError], str] | None:
    if code in _LOCK_TIMEOUTS:
        return LockTimeout, "try again; pg_locks and pg_stat_activity show who holds the lock"
    if code == errorcodes.QUERY_CANCELED and "statement timeout" in found:
        return RetryLater, "try again; the statement took longer than it may (statement_timeout)"
    if code == errorcodes.QUERY_CANCELED:
        return RetryLater, "try again; somebody cancelled the statement (pg_cancel_backend)"
    if code in _PASSING or code[:2] in _PASSING_CLASSES:
        return RetryLater, "try again; if it stays, see the server's log"
    if code in _MISSING and _LEDGER_OBJECT.search(found):
        return LedgerOutdated, MIGRATE
    if code == errorcodes.INSUFFICIENT_PRIVILEGE:
        return ConfigError, _grant(found)
    return None


def connection_fault(found: str, params: Mapping[str, object] | None = None) -> tuple[type[IngestError], str]:
    """Return class and advice for libpq's text: what can pass by itself is never a fault of the connection.

    Args:
        found: The text.
        params: Parameters of the connection, where it is not open yet.
    """
    if not _PASSES.search(found):
        known = {"dbname": "…", "user": "…", **(params or {})}
        for pattern, advice in _REFUSED.items():
            if re.search(pattern, found):
                filled = advice.format(database=quoted(str(known["dbname"])), role=quoted(str(known["user"])))
                return ConfigError, f"{filled.removesuffix(';')}; then: python -m kafka_ingest preflight"
    next_command = "try again; if it stays, check that a read-write server can be reached and has room"
    next_command += ": python -m kafka_ingest preflight"
    if "session is read-only" in found:
        next_command += ", and SHOW default_transaction_read_only"
    return DatabaseUnavailable, next_command


def _grant(found: str) -> str:
    """Return the smallest GRANT that helps; PostgreSQL names the object, not the right."""
    to = "TO the role of the connection"
    if match := re.search(r'set parameter "(\S+)"', found):
        return f"ALTER ROLE … RESET {match[1]}, or ALTER DATABASE … RESET {match[1]}: a superuser set it"
    if match := re.search(r"for database (\S+)", found):
        return f"GRANT CREATE ON DATABASE {match[1]} {to}"
    if match := re.search(r"for schema (\S+)", found):
        rights = _SCHEMA_RIGHTS.get(match[1].strip('"'), "USAGE (and CREATE where the pipeline creates its table)")
        more = "; to migrate, USAGE, CREATE" if match[1].strip('"') == "kafka_ingest" else ""
        return f"GRANT {rights} ON SCHEMA {match[1]} {to}{more}"
    if match := re.search(r"for sequence (\S+)", found):
        return f"GRANT USAGE ON SEQUENCE {match[1]} {to}"
    if match := re.search(r"for tablespace (\S+)", found):  # of default_tablespace
        return f"GRANT CREATE ON TABLESPACE {match[1]} {to}"
    if match := re.search(r"for (?:table|view|relation) (\S+)", found):
        if match[1] in LOAD_RIGHTS:
            rights = ledger_rights(match[1])
            reads_only = "" if rights == "SELECT" else "; to read only, SELECT"
            return f"GRANT {rights} ON kafka_ingest.{match[1]} {to}{reads_only}"
        return f"GRANT SELECT, INSERT, DELETE ON {match[1]} {to}"
    return "let the owner grant it to the role of the connection, or connect as the owner"


@contextmanager
def database_faults(doing: str) -> Iterator[None]:
    """Raise each error from psycopg2 as the error of this package that it means.

    Connection trouble, shutdown, a full disk and a read-only server are ``DatabaseUnavailable``; a lock that is not
    granted is ``LockTimeout``; a missing ledger is ``LedgerOutdated``; a missing privilege is ``ConfigError`` with the
    GRANT; what another transaction or an internal error caused is ``RetryLater``. Everything else would be refused
    again in the same way: ``DatabaseRefused``.

    Args:
        doing: What is being done, as in "could not <doing>".
    """
    try:
        yield
    except psycopg2.Error as error:
        raise refused(error, doing) from error


def without_secrets(text: str, params: Mapping[str, object]) -> str:
    """Blank the secret values of connection parameters in a text."""
    whole = [str(params[name]) for name in ("dsn", "passfile") if params.get(name)]
    return scrubbed(text, [*whole, *secret_values(params)])
