"""Which error of this package an error of PostgreSQL is, by SQLSTATE and message."""

from __future__ import annotations

import psycopg2
import pytest

from kafka_ingest.errors import (
    ConfigError,
    DatabaseRefused,
    DatabaseUnavailable,
    IngestError,
    LedgerOutdated,
    LockTimeout,
    RetryLater,
    StopAndCall,
)
from kafka_ingest.postgres.faults import (
    connection_fault,
    database_faults,
    ingest_error,
    server_message,
    trace_without_payload,
    whole_message,
    without_secrets,
)


class Refused(psycopg2.Error):
    """An error as a server sends it; psycopg2 lets nobody set the SQLSTATE of its own."""

    def __init__(self, sqlstate: str | None, message: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate

    @property
    def pgcode(self) -> str | None:  # type: ignore[override]
        return self.sqlstate


@pytest.mark.parametrize(
    ("sqlstate", "expected"),
    [
        ("08006", DatabaseUnavailable),  # connection failure
        ("57P01", DatabaseUnavailable),  # admin shutdown
        ("57P02", DatabaseUnavailable),  # crash shutdown
        ("57P03", DatabaseUnavailable),  # cannot connect now
        ("53100", DatabaseUnavailable),  # disk full
        ("53200", DatabaseUnavailable),  # out of memory
        ("53300", DatabaseUnavailable),  # too many connections
        ("58030", DatabaseUnavailable),  # I/O error
        ("25006", DatabaseUnavailable),  # read-only transaction
        ("25P03", DatabaseUnavailable),  # idle in transaction for too long: the server ended the session
        ("55P03", LockTimeout),
        ("40P01", LockTimeout),  # deadlock
        ("40001", RetryLater),  # serialization failure
        ("57014", RetryLater),  # statement timeout
        ("42501", ConfigError),
    ],
)
def test_an_expected_fault_is_of_the_family_that_says_what_to_do(sqlstate: str, expected: type[IngestError]) -> None:
    assert type(ingest_error(Refused(sqlstate), "do it")) is expected


@pytest.mark.parametrize(
    "message",
    [
        'could not extend file "base/1/2" with FileFallocate(): File too large',
        'could not extend file "base/1/2": Disk quota exceeded',
        'could not write to file "base/pgsql_tmp/pgsql_tmp1.0": File too large',
        'could not write file "base/1/2": Disk quota exceeded',
    ],
)
def test_a_quota_or_a_file_size_limit_is_a_full_disk_and_never_the_targets_word(message: str) -> None:
    assert type(ingest_error(Refused("XX000", message), "do it")) is DatabaseUnavailable


@pytest.mark.parametrize(
    ("sqlstate", "family"),
    [
        ("22P02", StopAndCall),
        ("23505", StopAndCall),
        ("42601", StopAndCall),
        ("42P01", StopAndCall),  # a table that is neither the ledger's nor staging
        ("54000", StopAndCall),
        ("55000", StopAndCall),  # a published table without replica identity
        ("P0001", StopAndCall),  # a function raised it
        ("XX001", StopAndCall),  # data corrupted: a person must look
        ("XX002", StopAndCall),
        ("0A000", StopAndCall),
        (None, StopAndCall),  # psycopg2's own word, as for a value that it cannot adapt
        ("XX000", RetryLater),  # internal error, as "tuple concurrently updated"
        ("55006", RetryLater),  # object in use
        ("25P02", RetryLater),  # the transaction has failed before
        ("40003", RetryLater),
        ("99999", StopAndCall),  # unknown: going on could hide what it means
    ],
)
def test_every_other_error_is_a_package_error_too(sqlstate: str | None, family: type[IngestError]) -> None:
    refused = Refused(sqlstate, "DDL is frozen")
    with pytest.raises(family, match="could not do it") as raised, database_faults("do it"):
        raise refused
    assert "DDL is frozen" in raised.value.found
    assert type(raised.value) is (DatabaseRefused if family is StopAndCall else RetryLater)


@pytest.mark.parametrize(
    ("code", "message", "shown"),
    [
        ("22P02", 'invalid input syntax for type integer: "4111"', "invalid input syntax for type integer: …"),
        ("22P02", 'invalid input syntax for type integer: "a "b" c"', "invalid input syntax for type integer: …"),
        (
            "22021",
            'invalid byte sequence for encoding "UTF8": 0xc3 0x28',
            'invalid byte sequence for encoding "UTF8": …',
        ),
        ("22001", "value too long for type character varying(3)", "value too long for type character varying(3)"),
        ("23514", 'violates check constraint "positive"', 'violates check constraint "positive"'),
    ],
)
def test_values_that_a_primary_message_quotes_are_not_shown(code: str, message: str, shown: str) -> None:
    assert server_message(Refused(code, message)) == shown
    assert whole_message(Refused(code, message)) == message


def test_a_trace_shows_no_detail_and_no_context_of_a_database_error() -> None:
    text = f'not ok: "{4110 + 1}"'
    try:
        try:
            raise Refused("22P02", text)
        except psycopg2.Error as error:
            raise ValueError("later") from error
    except ValueError as error:
        trace = trace_without_payload(error)
    assert "4111" not in trace
    assert trace.index("Refused: not ok: …") < trace.index("which led to:") < trace.index("ValueError: later")


@pytest.mark.parametrize(
    "error", [psycopg2.OperationalError("server closed the connection"), psycopg2.InterfaceError("connection closed")]
)
def test_an_error_without_sqlstate_is_an_unavailable_database(error: psycopg2.Error) -> None:
    with pytest.raises(DatabaseUnavailable, match="could not load it") as raised, database_faults("load it"):
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    ("message", "names"),
    [
        (
            'connection to server at "db", port 5432 failed: FATAL:  password authentication failed for user "u"',
            "password",
        ),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "u", database "d", no encryption', "sslmode"),
        ('FATAL:  database "nope" does not exist', "schema"),
        ('FATAL:  role "nobody" does not exist', "login"),
        ('FATAL:  role "nobody" is not permitted to log in', "login"),
        ('invalid integer value "abc" for connection option "keepalives_idle"', "extra"),
        ('invalid sslmode value: "verify_full"', "extra"),
        ('invalid port number: "0"', "extra"),
        ('root certificate file "/nonexistent/ca.crt" does not exist Either provide the file', "sslrootcert"),
        ('server certificate for "db" does not match host name "ip6-localhost"', "host"),
        ("SSL error: certificate verify failed", "sslrootcert"),
        ('certificate present, but not private key file "/x/client.key"', "sslkey"),
        ('private key file "/x/client.key" has group or world access', "sslkey"),
        ('FATAL:  certificate authentication failed for user "u"', "sslcert"),
        ("FATAL:  connection requires a valid client certificate", "sslcert"),
        ("SSL error: tlsv1 alert unknown ca", "sslcert"),
        ("SSL error: ssl/tls alert bad certificate", "sslcert"),
        ("server does not support SSL, but SSL was required", "sslmode"),
        ('FATAL:  permission denied for database "d"', "GRANT CONNECT"),
    ],
)
def test_a_fault_of_the_connection_is_a_configuration_error_at_once_and_names_the_setting(
    message: str, names: str
) -> None:
    error, next_command = connection_fault(message)
    assert error is ConfigError
    assert names in next_command
    assert next_command.endswith("python -m kafka_ingest preflight")


@pytest.mark.parametrize(
    "message",
    [
        "FATAL:  the database system is starting up",
        "FATAL:  the database system is shutting down",
        "FATAL:  the database system is not yet accepting connections",
        "could not receive data from server: Connection reset by peer SSL error: certificate verify failed",
        "SSL SYSCALL error: EOF detected",
        "server closed the connection unexpectedly",
        'connection to server at "db" failed: Connection refused',
        'could not translate host name "db" to address: Temporary failure in name resolution',
        "session is read-only",
    ],
)
def test_what_a_restart_says_stays_an_unavailable_database(message: str) -> None:
    assert connection_fault(message)[0] is DatabaseUnavailable


@pytest.mark.parametrize(
    "message",
    [
        'relation "kafka_ingest.batch" does not exist',
        'schema "kafka_ingest" does not exist',
        "relation « kafka_ingest.batch » n'existe pas",
    ],
)
def test_a_missing_ledger_names_the_command_that_makes_it(message: str) -> None:
    error = ingest_error(Refused("42P01", message), "plan")
    assert isinstance(error, LedgerOutdated)
    assert error.next_command == "python -m kafka_ingest migrate"


def test_a_missing_staging_table_is_not_a_missing_ledger() -> None:
    assert (
        ingest_error(Refused("42P01", 'relation "kafka_ingest_staging.b1_c1_rows" does not exist'), "publish") is None
    )


@pytest.mark.parametrize(
    ("message", "grant"),
    [
        ("permission denied for database sales", "GRANT CREATE ON DATABASE sales"),
        ("permission denied for schema kafka_ingest", "GRANT USAGE ON SCHEMA kafka_ingest TO"),
        ("permission denied for schema kafka_ingest_staging", "GRANT USAGE, CREATE ON SCHEMA kafka_ingest_staging TO"),
        ("permission denied for table orders", "GRANT SELECT, INSERT, DELETE ON orders"),
        ("permission denied for table batch", "GRANT SELECT, INSERT, UPDATE ON kafka_ingest.batch TO"),
        ("permission denied for sequence orders_nr_seq", "GRANT USAGE ON SEQUENCE orders_nr_seq"),
        ("permission denied for tablespace fast", "GRANT CREATE ON TABLESPACE fast"),
        ("must be owner of table orders", "owner"),
    ],
)
def test_a_missing_privilege_says_what_to_grant(message: str, grant: str) -> None:
    error = ingest_error(Refused("42501", message), "plan")
    assert error is not None
    assert grant in error.next_command


def test_secrets_of_the_connection_are_blanked() -> None:
    params = {"host": "db", "password": "s3cret", "sslpassword": "k3y", "user": "u"}
    assert without_secrets("host db password s3cret key k3y", params) == "host db password *** key ***"
