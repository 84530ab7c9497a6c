"""Right and wrong connections to a PostgreSQL with TLS, logins and rights: told alike by plan, preflight, driver, task.

Each row says what is wrong, which error it is, and what its message names. Nothing that a retry cannot help is retried:
the family of the error decides about it (``operators/context.py``).
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from kafka_ingest.cli.command import world_of
from kafka_ingest.connections import connection_from_environment, postgres_params_of
from kafka_ingest.errors import ConfigError, DatabaseUnavailable, IngestError, RetryLater
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.postgres.database import connect
from kafka_ingest.preflight.checks import Verdict, answered
from kafka_ingest.preflight.database import database_results
from kafka_ingest.protocol.load import load_batch
from kafka_ingest.protocol.staging import StageContext, StageTask
from kafka_ingest.protocol.target import TargetShape
from sandbox.paths import CHECKOUT
from sandbox.postgres import PostgresServer
from spark_jobs.load_job import InProcessRunner, load_ports
from spark_jobs.stage import stage_task
from tests.certificates import KEY_PASSWORD
from tests.fakes.listed_reader import ListedReader
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest
from tests.secured_postgres import HOSTILE, PASSWORDS, SecuredPostgres
from tests.services import ROLES, fresh_database, services_of_one_test

#: What a person waits at most. Four places ask, each once; a machine that is busy takes longer.
BOUND_SECONDS = 15
BATCH = "6d1f6b5e-8f0a-4d58-9d53-2a3d1a1d7a10"


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredPostgres]:
    services = services_of_one_test()
    server = SecuredPostgres(services.folder / "secured")
    server.start()
    with closing(psycopg2.connect(**server.params())) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute("CREATE DATABASE closed")
        cursor.execute("REVOKE CONNECT ON DATABASE closed FROM PUBLIC")
    yield server
    server.destroy()
    services.remove()


@pytest.fixture(scope="module")
def expired(secured: SecuredPostgres) -> Iterator[SecuredPostgres]:
    """A server whose own certificate has expired."""
    server = SecuredPostgres(secured.folder.with_name("expired"), "expired")
    server.start()
    yield server
    server.destroy()


@dataclass
class Servers:
    """What a row can be wrong with."""

    secured: SecuredPostgres
    expired: SecuredPostgres
    plain: PostgresServer

    def pem(self, name: str, key: str = "") -> dict[str, str]:
        """Return certificate and key of a client, as texts."""
        return {"sslcert": self.secured.text(f"{name}.crt"), "sslkey": self.secured.text(f"{key or name}.key")}


@pytest.fixture
def servers(secured: SecuredPostgres, expired: SecuredPostgres, postgres_server: PostgresServer) -> Servers:
    return Servers(secured, expired, postgres_server)


@dataclass(frozen=True)
class Row:
    """One wrong connection: ``of`` gives the Airflow connection."""

    of: Callable[[Servers], Mapping[str, Any]]
    says: tuple[str, ...]
    error: type[IngestError] = field(default=ConfigError)


def loader(**given: Any) -> Callable[[Servers], Mapping[str, Any]]:
    """Return the right connection of the loader but for this."""
    return lambda servers: servers.secured.connection("postgres", **given)


def certified(certificate: str, key: str = "", **extra: str) -> Callable[[Servers], Mapping[str, Any]]:
    """Return a connection that logs in by certificate alone, with this one."""

    def of(servers: Servers) -> Mapping[str, Any]:
        pem = servers.pem(certificate, key) if certificate else {}
        return servers.secured.connection("postgres", login="certified", password=None, extra={**pem, **extra})

    return of


def with_files(**names: str) -> Callable[[Servers], Mapping[str, Any]]:
    """Return the connection of ``certified`` with paths of these files; one that is not there stays a bare path."""

    def of(servers: Servers) -> Mapping[str, Any]:
        paths = {setting: servers.secured.file(name) for setting, name in names.items()}
        return servers.secured.connection("postgres", login="certified", password=None, extra=paths)

    return of


def without_tls(servers: Servers) -> Mapping[str, Any]:
    known = servers.plain.params()
    fields = {"host": "127.0.0.1", "port": known["port"], "login": known["user"], "password": known["password"]}
    return {"conn_type": "postgres", **fields, "schema": "postgres", "extra": {"sslmode": "require"}}


MACHINE = socket.gethostname()
ROWS = {
    "wrong password": Row(loader(password="not-it"), ('user "loader"', "correct login and password")),
    "unknown user": Row(loader(login="absent"), ('user "absent"', "correct login and password")),
    "no password": Row(loader(password=None), ("no password supplied", "correct login and password")),
    "no entry in pg_hba.conf": Row(
        loader(login="unlisted", password=PASSWORDS["unlisted"]), ('user "unlisted"', "pg_hba.conf take this user")
    ),
    "no right to connect": Row(loader(schema="closed"), ('GRANT CONNECT ON DATABASE "closed" TO "loader"',)),
    "no such database": Row(loader(schema="nowhere"), ("correct the schema of the connection",)),
    "server of an unknown authority": Row(
        lambda servers: servers.secured.connection(
            "postgres", extra={"sslrootcert": servers.secured.text("foreign-ca.crt")}
        ),
        ("authority in sslrootcert",),
    ),
    "server's certificate expired": Row(
        lambda servers: servers.expired.connection("postgres"), ("certificate has expired",)
    ),
    "wrong host name": Row(
        loader(host="elsewhere.example", extra={"hostaddr": "127.0.0.1"}),
        ('"elsewhere.example"', "set host to a name that the server's certificate holds"),
    ),
    "no authority": Row(loader(extra={"sslrootcert": None}), ("set sslrootcert to a file",)),
    "no TLS, where the server wants it": Row(loader(extra={"sslmode": "disable"}), ("no encryption", "set sslmode")),
    "TLS, where the server has none": Row(without_tls, ("set sslmode to one that the server offers",)),
    "no client certificate": Row(certified(""), ("set sslcert and sslkey",)),
    "client certificate of another user": Row(certified("both"), ('user "certified"', "set sslcert and sslkey")),
    "client certificate of an unknown authority": Row(certified("stranger"), ("set sslcert and sslkey",)),
    "client certificate expired": Row(certified("expired"), ("certificate expired", "set sslcert and sslkey")),
    "password right, certificate of another user": Row(
        lambda servers: servers.secured.connection(
            "postgres", login="both", password=PASSWORDS["both"], extra=servers.pem("certified")
        ),
        ("clientcert=verify-full", "sslcert must name this user"),
    ),
    "key of another certificate": Row(certified("certified", "both"), ("the text in sslkey", "set sslcert and sslkey")),
    "encrypted key without its password": Row(certified("certified", "certified.enc"), ("no sslpassword",)),
    "encrypted key, wrong password": Row(
        certified("certified", "certified.enc", sslpassword="not-it"), ("the text in sslkey", "correct sslpassword")
    ),
    "files that are not there": Row(
        with_files(sslcert="none.crt", sslkey="none.key", sslcrl="none.crl"),
        (MACHINE, "sslcert: ", "none.crt", "sslkey: ", "none.key", "sslcrl: ", "none.crl"),
    ),
    "a key that others may read": Row(
        with_files(sslcert="certified.crt", sslkey="open.key"), ("group or world access", MACHINE, "sslkey")
    ),
    "nobody listens": Row(loader(port=1), ("Connection refused", "try again"), DatabaseUnavailable),
}


@pytest.fixture
def asked(
    raw_pipeline: PipelineUnderTest, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Mapping[str, Any]], dict[str, IngestError]]:
    """Asks all who connect, with this Airflow connection; gives what each of them says."""
    raw_pipeline.write("never-read")

    def ask(connection: Mapping[str, Any]) -> dict[str, IngestError]:
        monkeypatch.setenv("AIRFLOW_CONN_POSTGRES_DEFAULT", json.dumps(connection))
        places = {"plan": plan, "preflight": preflight, "driver": driver, "executor": executor}
        return {name: place(raw_pipeline) for name, place in places.items()}

    return ask


def plan(pipeline: PipelineUnderTest) -> IngestError:
    with pytest.raises(IngestError) as caught:
        pipeline.plan_only("by-hand")
    return caught.value


def preflight(pipeline: PipelineUnderTest) -> IngestError:
    """Return the one line about the database as an error: preflight goes on, and tells no class."""
    settings = find_pipeline(pipeline.name)
    probe = world_of(settings).database_probe()
    [line] = answered("postgresql", lambda: database_results(settings.batch, probe))
    assert line.result is Verdict.FAIL
    return ConfigError("preflight", found=line.found, next_command=line.fix)


def driver(pipeline: PipelineUnderTest) -> IngestError:
    environment = world_of(find_pipeline(pipeline.name)).job_environment()
    runner = InProcessRunner(lambda _: pytest.fail("a batch was staged"))
    with pytest.raises(IngestError) as caught:
        load_batch(BATCH, load_ports(environment, runner), hold=environment.hold, report=lambda _: None)
    return caught.value


def executor(pipeline: PipelineUnderTest) -> IngestError:
    settings = find_pipeline(pipeline.name)
    postgres = world_of(settings).postgres_params()
    context = StageContext(BATCH, 1, settings.batch, TargetShape((), ()), kafka={}, postgres=postgres)
    with pytest.raises(IngestError) as caught:
        stage_task(StageTask(0, ()), context, 1, reader=ListedReader(()))
    return caught.value


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_wrong_connection_is_told_alike_wherever_it_is_used(
    row: Row, servers: Servers, asked: Callable[[Mapping[str, Any]], dict[str, IngestError]]
) -> None:
    connection = row.of(servers)
    began = time.monotonic()
    told = asked(connection)
    assert time.monotonic() - began < 4 * BOUND_SECONDS
    for place, error in told.items():
        if place != "preflight":
            assert type(error) is row.error, f"{place}: {error}"
            assert isinstance(error, RetryLater) == (row.error is DatabaseUnavailable)
        for part in row.says:
            assert part in f"{error.found} {error.expected} {error.next_command}", f"{place}: {error}"
        assert "python -m kafka_ingest preflight" in error.next_command
        for secret in (HOSTILE, "not-it", "PRIVATE KEY", "/proc/self"):
            assert secret not in f"{error}", place


def test_a_server_that_never_answers_is_given_up_after_ten_seconds_at_most(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: dict[str, Any] = {}
    monkeypatch.setattr("psycopg2.connect", lambda **params: wanted.update(params))
    connect(params_of(monkeypatch, servers.secured.connection("postgres")), application_name="test")
    assert 0 < wanted["connect_timeout"] <= BOUND_SECONDS


def params_of(environment: pytest.MonkeyPatch, connection: Mapping[str, Any]) -> dict[str, str]:
    environment.setenv("AIRFLOW_CONN_TRIED", json.dumps(connection))
    found = connection_from_environment("tried")
    assert found is not None
    return postgres_params_of(found)


RIGHT: dict[str, Callable[[Servers], Mapping[str, Any]]] = {
    "password of odd characters, authority by path": loader(),
    "authority as text": lambda servers: servers.secured.connection(
        "postgres", extra={"sslrootcert": servers.secured.text("ca.crt")}
    ),
    "client certificate by paths": with_files(sslcert="certified.crt", sslkey="certified.key"),
    "client certificate as texts": certified("certified"),
    "encrypted key as text": certified("certified", "certified.enc", sslpassword=KEY_PASSWORD),
    "password and client certificate": lambda servers: servers.secured.connection(
        "postgres", login="both", password=PASSWORDS["both"], extra=servers.pem("both")
    ),
}


@pytest.mark.parametrize("of", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_connection_is_verified_and_logs_in(
    of: Callable[[Servers], Mapping[str, Any]], servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = of(servers)
    with closing(connect(params_of(monkeypatch, connection), application_name="test")) as session:
        cursor = session.cursor()
        cursor.execute("SELECT current_user, s.ssl FROM pg_stat_ssl AS s WHERE s.pid = pg_backend_pid()")
        assert cursor.fetchall() == [(connection["login"], True)]


def open_texts(folder: Path) -> set[str]:
    """Return the files in memory, and those in the temporary folder, that hold texts of a connection."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists the folder
            links.append(str(descriptor.readlink()))
    return {link for link in links if "kafka_ingest" in link} | set(map(str, folder.glob("kafka_ingest_*")))


@pytest.mark.parametrize("has_memory_files", [True, False])
def test_texts_are_files_only_while_the_connection_is_made_and_only_their_user_may_read_them(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_memory_files: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not has_memory_files:
        monkeypatch.delattr(os, "memfd_create")
    seen: dict[str, tuple[int, str]] = {}
    opened = psycopg2.connect

    def watched(**params: Any) -> Any:
        assert open_texts(tmp_path)
        for name in ("sslrootcert", "sslcert", "sslkey"):
            seen[params[name]] = (Path(params[name]).stat().st_mode & 0o777, Path(params[name]).read_text("ascii"))
        return opened(**params)

    monkeypatch.setattr("psycopg2.connect", watched)
    extra = {**servers.pem("certified"), "sslrootcert": servers.secured.text("ca.crt")}
    right = servers.secured.connection("postgres", login="certified", password=None, extra=extra)
    connect(params_of(monkeypatch, right), application_name="test").close()
    assert sorted(seen.values()) == sorted((0o600, text) for text in extra.values() if text != "verify-full")
    assert [path.startswith("/proc/self/fd/") for path in seen] == [has_memory_files] * 3
    assert not open_texts(tmp_path)


@contextmanager
def resetting() -> Iterator[int]:
    """Yields the port of a server that ends each connection as the handshake of TLS begins, as one that restarts."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, suppress(OSError):
                    client.recv(8)  # SSLRequest

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_a_handshake_that_is_cut_off_is_an_unavailable_database(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with resetting() as port, pytest.raises(DatabaseUnavailable):
        connect(params_of(monkeypatch, servers.secured.connection("postgres", port=port)), application_name="test")


def test_texts_in_the_connection_reach_plan_driver_and_executors(
    pipeline: FedPipeline, secured: SecuredPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"sslrootcert": "ca.crt", "sslcert": "certified.crt", "sslkey": "certified.enc.key"}
    extra = {**{setting: secured.text(name) for setting, name in texts.items()}, "sslpassword": KEY_PASSWORD}
    with fresh_database(secured) as admin:
        loads = replace(pipeline, database=admin)
        loads.query(f"GRANT {ROLES['loader']} TO certified")
        right = secured.connection(admin["dbname"], login="certified", password=None, extra=extra)
        monkeypatch.setenv("AIRFLOW_CONN_POSTGRES_DEFAULT", json.dumps(right))
        loads.open()
        loads.send(b"1")
        assert loads.load(runner="spark")["counts"]["rows"] == 1
        assert loads.rows("payload") == [(b"1",)]


def blocks(language: str) -> list[str]:
    page = (CHECKOUT / "docs" / "secured-services.md").read_text(encoding="utf-8")
    [section] = re.findall(r"^## PostgreSQL$(.*?)(?=^## |\Z)", page, re.S | re.M)
    return re.findall(rf"```{language}\n(.*?)```", section, re.S)


def of_the_server(documented: Mapping[str, Any], secured: SecuredPostgres) -> dict[str, Any]:
    """Return a connection of the page with the test's own names, password, texts and paths in place of the page's."""
    known = documented["extra"]
    has_certificate = "sslcert" in known
    login = "certified" if has_certificate else "loader"
    key = "certified.enc.key" if "sslpassword" in known else "certified.key"
    files = {"sslrootcert": "ca.crt", "sslcert": "certified.crt", "sslkey": key}
    show = secured.text if "BEGIN" in known["sslrootcert"] else secured.file
    own: dict[str, str] = {name: show(file) for name, file in files.items() if name in known}
    own |= {"sslpassword": KEY_PASSWORD} if "sslpassword" in known else {}
    fields = {"host": "localhost", "port": secured.port, "schema": "postgres", "login": login}
    password = {"password": HOSTILE} if "password" in documented else {}
    assert documented.keys() - fields.keys() == {"conn_type", "extra", *password}
    return {**documented, **fields, **password, "extra": {**known, **own}}


@pytest.mark.parametrize("block", blocks("json"), ids=["authority", "certificate", "paths"])
def test_the_documented_connections_connect(
    block: str, secured: SecuredPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = of_the_server(json.loads(block), secured)
    connect(params_of(monkeypatch, connection), application_name="test").close()


def test_the_documented_lines_make_a_connection_of_files(
    secured: SecuredPostgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    [lines] = blocks("python")
    for name, file in {"ca.crt": "ca.crt", "etl.crt": "certified.crt", "etl.key": "certified.key"}.items():
        (tmp_path / name).write_text(secured.text(file))
    monkeypatch.chdir(tmp_path)
    exec(compile(lines, "secured-services.md", "exec"), {})
    printed = json.loads(capsys.readouterr().out)
    assert printed["extra"]["sslkey"] == secured.text("certified.key")
    connection = of_the_server(printed, secured)
    connect(params_of(monkeypatch, connection), application_name="test").close()
