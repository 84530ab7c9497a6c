"""Servers of one script: durable as in production, in a temporary folder, gone when the script ends."""

from __future__ import annotations

import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kafka_ingest.postgres.migrations import migrate
from sandbox.kafka import KafkaBroker
from sandbox.postgres import PostgresServer


class _Server(Protocol):
    def start(self) -> None: ...

    def destroy(self) -> None: ...


_S = TypeVar("_S", bound=_Server)


def own_postgres() -> AbstractContextManager[PostgresServer]:
    """Return a running server with ``fsync`` and ``synchronous_commit`` on."""
    return _own(lambda folder: PostgresServer(folder / "postgres"))


def own_kafka() -> AbstractContextManager[KafkaBroker]:
    """Return a running broker."""
    return _own(lambda folder: KafkaBroker(folder / "kafka"))


@contextmanager
def _own(server_in: Callable[[Path], _S]) -> Iterator[_S]:
    _end_in_order()
    with tempfile.TemporaryDirectory(prefix="kafka-ingest-growth-") as folder:
        server = server_in(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.destroy()


def new_ledger(server: PostgresServer) -> dict[str, Any]:
    """Return the connection parameters of a new database with the ledger."""
    name = f"growth_{uuid.uuid4().hex[:8]}"
    server.create_database(name)
    params = server.params(name)
    migrate(params)
    return params


def _end_in_order() -> None:
    """Lets a script that is told to stop remove its servers first."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
