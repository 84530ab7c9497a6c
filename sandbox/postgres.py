"""A PostgreSQL server of its own: loopback, a random password, data that survives stop and crash."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg2
from psycopg2 import sql

from sandbox.errors import SandboxError
from sandbox.paths import log_tail, private_folder, write_secret
from sandbox.ports import PortBook, is_listening
from sandbox.postgres_binaries import binary_folder, reachable_home, run_as, unprivileged_user

HOST = "127.0.0.1"
USER = "postgres"
RESTART_SECONDS = 20.0  # after a kill the dead server's children may hold its lock file for about a second


class PostgresServer:
    """One server. Every method can be called by any process that names the same folder.

    Args:
        folder: State folder of this server; the port is remembered in its parent folder.
        fsync: False is quicker and loses data when the machine (not merely the server) crashes: for tests.
    """

    def __init__(self, folder: Path, *, fsync: bool = True) -> None:
        self.folder = folder
        self._fsync = fsync
        self._ports = PortBook(folder.parent)
        self._port_name = folder.name
        self._user = unprivileged_user()
        self._home_folder: Path | None = None
        self._programs: Path | None = None

    def start(self) -> None:
        """Start the server and wait until it accepts connections; the first time, make its data folder. Idempotent.

        Raises:
            SandboxError: It did not start; the end of its log is in the message.
        """
        if self.is_running():
            return
        if not (self._data / "PG_VERSION").exists():
            self._create()
        deadline = time.monotonic() + RESTART_SECONDS
        while not self._try_start():
            if time.monotonic() > deadline:
                raise SandboxError("PostgreSQL does not start", found=log_tail(self.log))
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop the server; open connections are closed. Idempotent."""
        if self.pid() is not None:
            self._pg_ctl("stop", "-m", "fast", "-w", "-t", "60")

    def kill(self) -> None:
        """Kill the server as a crash would, and wait until nothing listens any more; ``start`` then recovers."""
        pid = self.pid()
        if pid is None:
            return
        os.kill(pid, signal.SIGKILL)
        while is_listening(self.port):
            time.sleep(0.05)

    def destroy(self) -> None:
        """Stop the server and delete its data, its password and its port. Idempotent."""
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._ports.forget(self._port_name)

    def is_running(self) -> bool:
        """Tell whether the server lives and accepts connections with our password."""
        if self.pid() is None:
            return False
        try:
            psycopg2.connect(**self.params(), connect_timeout=3).close()
        except psycopg2.OperationalError:
            return False
        return True

    def pid(self) -> int | None:
        """Return the pid of the server process, or None."""
        if not (self._data / "postmaster.pid").exists() or self._pg_ctl("status") != 0:
            return None
        return int((self._data / "postmaster.pid").read_text(encoding="utf-8").split()[0])

    @property
    def port(self) -> int:
        """The port of the server.

        Raises:
            SandboxError: It was never started.
        """
        port = self._ports.known(self._port_name)
        if port is None:
            raise SandboxError("PostgreSQL was never started here", next_step="make up")
        return port

    @property
    def log(self) -> Path:
        """The server's log."""
        return self._home / "postgres.log"

    def params(self, database: str = "postgres") -> dict[str, Any]:
        """Return the arguments for ``psycopg2.connect``: host, port, user, password, dbname."""
        return {"host": HOST, "port": self.port, "user": USER, "password": self._password(), "dbname": database}

    def dsn(self, database: str = "postgres", *, scheme: str = "postgresql") -> str:
        """Return the address as a URL, percent-encoded; it holds the password."""
        return f"{scheme}://{USER}:{quote(self._password(), safe='')}@{HOST}:{self.port}/{quote(database, safe='')}"

    def program(self, name: str) -> Path:
        """Return the path of one of PostgreSQL's programs, for example ``psql``."""
        if self._programs is None:
            self._programs = binary_folder(self._user, self._home)
        return self._programs / name

    def create_database(self, name: str) -> None:
        """Create an empty UTF8 database if there is none of that name."""
        with_database = psycopg2.connect(**self.params())
        try:
            with_database.autocommit = True
            with with_database.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
                if cursor.fetchone() is None:
                    cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        finally:
            with_database.close()

    @property
    def _home(self) -> Path:
        if self._home_folder is None:
            self._home_folder = reachable_home(self._user, self.folder)
        return self._home_folder

    @property
    def _data(self) -> Path:
        return self._home / "data"

    def _password(self) -> str:
        path = self.folder / "password"
        if not path.exists():
            write_secret(path, secrets.token_urlsafe(18))
        return path.read_text(encoding="utf-8")

    def _create(self) -> None:
        private_folder(self._data)
        self._give(self._data, 0o700)
        for_initdb = self._home / f".password.{os.getpid()}"
        write_secret(for_initdb, self._password())
        self._give(for_initdb, 0o600)
        options = ["-A", "scram-sha-256", "-E", "UTF8", "--no-locale", *([] if self._fsync else self._for_tests())]
        try:
            answer = run_as(
                self._user,
                [self.program("initdb"), "-D", self._data, "-U", USER, f"--pwfile={for_initdb}", *options],
            )
        finally:
            for_initdb.unlink()
        if answer.returncode != 0:
            raise SandboxError("PostgreSQL's data folder cannot be made", found=answer.stdout.strip())
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write("include 'sandbox.conf'\n")

    def _for_tests(self) -> list[str]:
        """Return options of initdb: test runs connect ten thousand times, and both sides hash 4,096 times for each."""
        version = re.search(r"[0-9]+", run_as(self._user, [self.program("initdb"), "--version"]).stdout)
        has_setting = version is not None and int(version[0]) >= 16
        return ["--no-sync", *(["-c", "scram_iterations=1"] if has_setting else [])]

    def _try_start(self) -> bool:
        port = self._ports.port_for_start(self._port_name)
        settings = self._data / "sandbox.conf"
        settings.write_text(self._settings_of(port), encoding="utf-8")
        self._give(settings, 0o600)
        self.log.touch()
        self._give(self.log, 0o600)
        return self._pg_ctl("start", "-l", str(self.log), "-w", "-t", "60") == 0 and self.is_running()

    def _settings_of(self, port: int) -> str:
        switch = "on" if self._fsync else "off"
        return "\n".join(
            (
                "# Written at every start by sandbox/postgres.py.",
                f"listen_addresses = '{HOST}'",
                f"port = {port}",
                "unix_socket_directories = ''",
                "max_connections = 200",  # Airflow's four parts take about 40; every Spark task takes two
                "shared_buffers = 128MB",
                "max_wal_size = 2GB",  # the demo's loads do not run into a forced database checkpoint
                "timezone = 'UTC'",
                "log_timezone = 'UTC'",
                f"fsync = {switch}",
                f"full_page_writes = {switch}",
                "",
            )
        )

    def _pg_ctl(self, action: str, *options: str) -> int:
        command: list[str | Path] = [self.program("pg_ctl"), action, "-D", self._data, *options]
        return run_as(self._user, command, log=self._home / "pg_ctl.log").returncode

    def _give(self, path: Path, mode: int) -> None:
        path.chmod(mode)
        if self._user is not None:
            os.chown(path, self._user.pw_uid, self._user.pw_gid)
