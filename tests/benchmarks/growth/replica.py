"""A streaming replica of a server, on the same machine, and how far it is behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.paths import write_secret
from sandbox.postgres import PostgresServer
from sandbox.postgres_binaries import run_as, unprivileged_user


class NoReplica(Exception):
    """The replica could not be made; the text is the program's output."""


@contextmanager
def replica_of(primary: PostgresServer) -> Iterator[PostgresServer]:
    """Return a running hot standby, a copy of ``primary`` with its password; it replays with the default settings.

    Raises:
        NoReplica: ``pg_basebackup`` failed.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-ingest-growth-") as folder:
        replica = PostgresServer(Path(folder) / "replica")
        replica.folder.mkdir()
        params = primary.params()
        write_secret(replica.folder / "password", str(params["password"]))
        _copy(primary, replica.log.parent / "data")
        try:
            replica.start()
            yield replica
        finally:
            replica.destroy()


def _copy(primary: PostgresServer, data: Path) -> None:
    user, params = unprivileged_user(), primary.params()
    data.mkdir(mode=0o700)
    if user is not None:
        shutil.chown(data, user.pw_uid, user.pw_gid)
    # The slot keeps the WAL that a replica which fell behind still needs: without it a checkpoint removes it for good.
    slot = ["-C", "-S", "replica"]
    place = ["-h", params["host"], "-p", str(params["port"]), "-U", params["user"]]
    os.environ["PGPASSWORD"] = str(params["password"])  # not among the arguments, which everybody can see
    try:
        answer = run_as(
            user, [primary.program("pg_basebackup"), "-D", data, *place, *slot, "-R", "-X", "stream", "-c", "fast"]
        )
    finally:
        del os.environ["PGPASSWORD"]
    if answer.returncode:
        raise NoReplica(answer.stdout.strip())
