"""Servers of one script: durable as in production, in a temporary folder, gone when the script ends."""

from __future__ import annotations

import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka_ingest.adapters.postgres_migrations import migrate
from sandbox.kafka import KafkaBroker
from sandbox.postgres import PostgresServer


@contextmanager
def own_postgres() -> Iterator[PostgresServer]:
    """Gives a running server with ``fsync`` and ``synchronous_commit`` on."""
    _end_in_order()
    with tempfile.TemporaryDirectory(prefix="kafka-ingest-growth-") as folder:
        server = PostgresServer(Path(folder) / "postgres")
        try:
            server.start()
            yield server
        finally:
            server.destroy()


@contextmanager
def own_kafka() -> Iterator[KafkaBroker]:
    """Gives a running broker."""
    _end_in_order()
    with tempfile.TemporaryDirectory(prefix="kafka-ingest-growth-") as folder:
        broker = KafkaBroker(Path(folder) / "kafka")
        try:
            broker.start()
            yield broker
        finally:
            broker.destroy()


def new_ledger(server: PostgresServer) -> dict[str, Any]:
    """Gives the connection parameters of a new database with the ledger."""
    name = f"growth_{uuid.uuid4().hex[:8]}"
    server.create_database(name)
    params = server.params(name)
    migrate(params)
    return params


def _end_in_order() -> None:
    """Lets a script that is told to stop remove its servers first."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
