"""PgBouncer in transaction mode before a PostgreSQL server: every transaction may run on another session."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg2

from sandbox.paths import write_secret
from sandbox.ports import PortBook
from sandbox.postgres_binaries import unprivileged_user
from sandbox.processes import ManagedProcess

#: Fewer sessions than clients, so that clients share them. A task holds one while it stages and wants a second one
#: for its progress now and then; the heartbeat is the third.
POOL_SIZE = 3

SETTINGS = """\
[databases]
* = host={host} port={server_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
default_pool_size = {pool_size}
"""


class Pooler:
    """One PgBouncer (Debian package ``pgbouncer``).

    Args:
        folder: For its files; its user must be able to read it.
        server: psycopg2's parameters of the server behind it.
    """

    def __init__(self, folder: Path, server: Mapping[str, Any]) -> None:
        self._server = server
        self._folder = folder
        self._process = ManagedProcess("pgbouncer", folder)
        self._port = PortBook(folder).port_for_start("pgbouncer")

    @staticmethod
    def is_installed() -> bool:
        return _program() is not None

    def params(self, database: str) -> dict[str, Any]:
        """Return psycopg2's parameters of a database behind the pooler."""
        return {**self._server, "port": self._port, "dbname": database}

    def start(self) -> None:
        program = _program()
        assert program is not None
        user = unprivileged_user()
        self._process.start([program, *(["-u", user.pw_name] if user else []), str(self._write_settings())])
        self._process.wait_until(self._answers, timeout_seconds=30)

    def stop(self) -> None:
        self._process.stop()

    def _write_settings(self) -> Path:
        settings, users = self._folder / "pgbouncer.ini", self._folder / "users.txt"
        # Only a double quote is doubled in this file: https://www.pgbouncer.org/config.html#authentication-file-format
        write_secret(users, " ".join('"{}"'.format(self._server[k].replace('"', '""')) for k in ("user", "password")))
        write_secret(
            settings,
            SETTINGS.format(
                host=self._server["host"],
                server_port=self._server["port"],
                port=self._port,
                users=users,
                pool_size=POOL_SIZE,
            ),
        )
        if user := unprivileged_user():
            for path in (settings, users):
                os.chown(path, user.pw_uid, user.pw_gid)
        return settings

    def _answers(self) -> bool:
        try:
            psycopg2.connect(**self.params("postgres")).close()
        except psycopg2.OperationalError:
            return False
        return True


def _program() -> str | None:
    # Debian puts it where only root's PATH looks.
    return shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))
