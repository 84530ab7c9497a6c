"""Little room for one PostgreSQL server: by a limit on the size of its files, or by a small file system of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from sandbox.postgres import PostgresServer
from sandbox.postgres_binaries import run_as, unprivileged_user

#: Above a WAL segment (16 MB): a server that cannot write its WAL stops, which is another test.
ROOM_BYTES = 20 * 2**20
TABLESPACE = "small"


@contextmanager
def file_size_limit(server: PostgresServer) -> Iterator[None]:
    """No session that begins inside can make a file larger than the room; needs no privilege."""
    _limit_file_size(server, str(ROOM_BYTES))
    try:
        yield
    finally:
        _limit_file_size(server, "unlimited")


def _limit_file_size(server: PostgresServer, soft_limit: str) -> None:
    # As the server's user: root in a container may lack the right to change limits of others.
    answer = run_as(unprivileged_user(), ["prlimit", f"--pid={server.pid()}", f"--fsize={soft_limit}:"])
    assert answer.returncode == 0, answer.stdout


@contextmanager
def small_tablespace(server: PostgresServer) -> Iterator[None]:
    """A tablespace on a file system of its own with as much space as the room; needs the right to mount."""
    folder = server.log.parent / TABLESPACE
    folder.mkdir()
    try:
        _mount(folder)
        owner = (folder.parent / "data").stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        execute(server.params(), f"CREATE TABLESPACE {TABLESPACE} LOCATION '{folder}'")
        execute(server.params(), f"GRANT CREATE ON TABLESPACE {TABLESPACE} TO PUBLIC")
        yield
        execute(server.params(), f"DROP TABLESPACE {TABLESPACE}")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False, stderr=subprocess.DEVNULL)
        folder.rmdir()


def _mount(folder: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "none", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(command, check=False).returncode != 0:
        pytest.skip("only root may mount a file system; the file size limit is tested in any case")


def execute(params: Mapping[str, Any], statement: str) -> None:
    """Executes a statement outside of a transaction."""
    with closing(psycopg2.connect(**dict[str, Any](params))) as connection:
        connection.autocommit = True
        connection.cursor().execute(statement)
