"""A PostgreSQL server with TLS, and logins by password and by certificate: a way to get each connection wrong."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg2
from psycopg2 import sql

from sandbox.maven import Artifact, check_files, fetch, made_once
from sandbox.paths import default_paths
from sandbox.postgres import PostgresServer
from sandbox.postgres_binaries import can_enter
from tests.certificates import Authority

VERSION = "18.1.0"
#: The sandbox's own build has no TLS. These have, for machines by the kernel's name: kind, its folder, SHA-256 sum.
_BUILDS = {
    "x86_64": (
        "linux-amd64",
        "postgres-linux-x86_64",
        "65d0723e0274ad3ec6230dcbdfe034af6ee096fce15a77b0f9b8be71d2702934",
    ),
    "aarch64": (
        "linux-arm64v8",
        "postgres-linux-arm_64",
        "ea0f16b754fc0a10d9d8993bbd426c20f8c709b318b28e49b42d9cac1c958b8f",
    ),
}

#: Characters that mean something to a shell, a URL, JSON, a connection string or SQL, and some beyond ASCII.
HOSTILE = "p\"a\\s;s@w/o%r$d x'{}\n\u00e4\u20ac\u65e5"
PASSWORDS = {"loader": HOSTILE, "both": "password-of-both", "unlisted": "password-of-unlisted"}

#: Who may come how: ``certified`` by certificate, ``both`` by password and certificate, nobody without TLS.
_ACCESS = """\
hostssl all postgres,test_owner 127.0.0.1/32 scram-sha-256
hostssl all certified 127.0.0.1/32 cert
hostssl all both 127.0.0.1/32 scram-sha-256 clientcert=verify-full
hostssl all loader,absent 127.0.0.1/32 scram-sha-256
"""


def programs_with_tls() -> Path:
    """Return the folder of PostgreSQL's programs, fetching them (15 MB, from Maven Central) the first time."""
    kind, archive, checksum = _BUILDS[platform.machine()]
    jar = Artifact("io.zonky.test.postgres", f"embedded-postgres-binaries-{kind}", VERSION)

    def make(draft: Path) -> None:
        with TemporaryDirectory() as folder:
            files = Path(folder) / "files"
            files.mkdir()
            fetch([jar], files, ivy_cache=Path(folder) / "ivy")
            check_files(files, {jar.file_name: checksum}, listed_in=Path(__file__))
            shutil.unpack_archive(files / jar.file_name, folder, "zip")
            shutil.unpack_archive(Path(folder) / f"{archive}.txz", draft, "xztar", filter="data")

    return made_once(default_paths().cache / "postgres-with-tls" / VERSION, make) / "bin"


class SecuredPostgres(PostgresServer):
    """The server; its certificate is ``server``, or the one that is named.

    Args:
        folder: State folder.
        certificate: Name of the certificate that it shows.
    """

    def __init__(self, folder: Path, certificate: str = "server") -> None:
        super().__init__(folder, fsync=False)
        self.certificates = folder.parent / "certificates"
        self._certificate = certificate

    def start(self) -> None:
        """Start it, with certificates and roles the first time."""
        if not self.certificates.exists():
            self._issue()
        super().start()
        with closing(psycopg2.connect(**self.params())) as connection, connection, connection.cursor() as cursor:
            cursor.execute("SELECT rolname FROM pg_roles")
            known = {name for (name,) in cursor.fetchall()}
            for role in {"certified", *PASSWORDS} - known:
                statement = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
                cursor.execute(statement.format(sql.Identifier(role), sql.Literal(PASSWORDS.get(role))))

    def program(self, name: str) -> Path:
        """Return the path of one of PostgreSQL's programs, where the server's user can run it."""
        programs = programs_with_tls()
        if can_enter(self._user, programs):
            return programs / name
        copy = self._home / "programs"
        if not copy.exists():
            draft = copy.with_name(f".programs.{os.getpid()}")
            shutil.copytree(programs.parent, draft, symlinks=True)
            draft.replace(copy)
        return copy / "bin" / name

    def file(self, name: str) -> str:
        """Return the path of a certificate or key."""
        return str(self.certificates / name)

    def text(self, name: str) -> str:
        """Return the PEM text of a certificate or key."""
        return (self.certificates / name).read_text(encoding="ascii")

    def connection(self, database: str, **given: Any) -> dict[str, Any]:
        """Return the Airflow connection of ``loader``, verified by paths, but for what the caller gives."""
        extra = {"sslmode": "verify-full", "sslrootcert": self.file("ca.crt"), **given.pop("extra", {})}
        fields = {"host": "localhost", "port": self.port, "login": "loader", "password": HOSTILE, "schema": database}
        kept: Mapping[str, Any] = {name: value for name, value in extra.items() if value is not None}
        return {"conn_type": "postgres", **fields, **given, "extra": kept}

    def _issue(self) -> None:
        last_month = datetime.now(UTC) - timedelta(days=30)
        authority = Authority(self.certificates, "ca")
        authority.issue("server")
        authority.issue("expired", until=last_month)
        authority.issue("certified")
        authority.issue("both")
        stranger = Authority(self.certificates, "foreign-ca")
        stranger.issue("stranger")
        for key in self.certificates.glob("*.key"):
            key.chmod(0o600)
        shutil.copy(self.file("certified.key"), self.file("open.key"))
        Path(self.file("open.key")).chmod(0o644)

    def _settings_of(self, port: int) -> str:
        for source, copy in ((f"{self._certificate}.crt", "server.crt"), (f"{self._certificate}.key", "server.key")):
            self._copy(source, copy)
        self._copy("ca.crt", "ca.crt")
        access = self._data / "pg_hba.conf"
        access.write_text(_ACCESS, encoding="utf-8")
        self._give(access, 0o600)
        tls = "ssl = on\nssl_cert_file = 'server.crt'\nssl_key_file = 'server.key'\nssl_ca_file = 'ca.crt'\n"
        return super()._settings_of(port) + tls

    def _copy(self, source: str, name: str) -> None:
        copy = self._data / name
        copy.write_text(self.text(source), encoding="ascii")
        self._give(copy, 0o600)
