"""Which error of this package an error of PostgreSQL is, by SQLSTATE and message."""

from __future__ import annotations

import psycopg2
import pytest

from kafka_ingest.adapters.postgres_faults import database_faults, ingest_error, without_secrets
from kafka_ingest.core.errors import (
    ConfigError,
    DatabaseUnavailable,
    IngestError,
    LedgerOutdated,
    LockTimeout,
    RetryLater,
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


@pytest.mark.parametrize("sqlstate", ["22P02", "23505", "42601", "42P01", "P0001", "XX000"])
def test_what_is_no_expected_fault_is_left_as_it_is(sqlstate: str) -> None:
    refused = Refused(sqlstate)
    with pytest.raises(Refused) as raised, database_faults("do it"):
        raise refused
    assert raised.value is refused


@pytest.mark.parametrize(
    "error", [psycopg2.OperationalError("server closed the connection"), psycopg2.InterfaceError("connection closed")]
)
def test_an_error_without_sqlstate_is_an_unavailable_database(error: psycopg2.Error) -> None:
    with pytest.raises(DatabaseUnavailable, match="could not load it") as raised, database_faults("load it"):
        raise error
    assert raised.value.__cause__ is error


def test_a_mistake_of_this_package_is_not_an_unavailable_database() -> None:
    with pytest.raises(psycopg2.ProgrammingError), database_faults("do it"):
        raise psycopg2.ProgrammingError("can't adapt type 'object'")


@pytest.mark.parametrize(
    "message",
    [
        'connection to server at "db", port 5432 failed: FATAL:  password authentication failed for user "u"',
        'FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "u", database "d", no encryption',
        'FATAL:  database "nope" does not exist',
        'FATAL:  role "nobody" does not exist',
    ],
)
def test_a_refused_login_is_a_configuration_error(message: str) -> None:
    assert isinstance(ingest_error(psycopg2.OperationalError(message), "connect"), ConfigError)


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
        ("permission denied for schema kafka_ingest", "GRANT USAGE, CREATE ON SCHEMA kafka_ingest"),
        ("permission denied for table orders", "GRANT SELECT, INSERT, UPDATE, DELETE ON orders"),
        ("must be owner of table orders", "owner"),
    ],
)
def test_a_missing_privilege_says_what_to_grant(message: str, grant: str) -> None:
    error = ingest_error(Refused("42501", message), "plan")
    assert error is not None
    assert grant in error.next_command


def test_pipeline_and_batch_are_named() -> None:
    with (
        pytest.raises(LockTimeout, match=r"pipeline orders, batch b1"),
        database_faults("plan", pipeline="orders", batch_id="b1"),
    ):
        raise Refused("40P01")


def test_secrets_of_the_connection_are_blanked() -> None:
    params = {"host": "db", "password": "s3cret", "sslpassword": "k3y", "user": "u"}
    assert without_secrets("host db password s3cret key k3y", params) == "host db password *** key ***"
