"""Ports and staging tasks that say when each call begins and ends, around the product's own code."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast
from unittest.mock import patch

from kafka_ingest.postgres import current_state
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.load import LoadPorts
from kafka_ingest.protocol.plan import PlanPorts
from kafka_ingest.protocol.ports import Publication, Publisher
from kafka_ingest.protocol.staging import StageResult, StageTask
from spark_jobs import stage
from spark_jobs.stage import stage_task
from spark_jobs.staging import StagingWriter

#: Called with the name of an event; may not come back, or raise.
Reached = Callable[[str], None]
Port = TypeVar("Port")


def watched(port: Port, name: str, reached: Reached) -> Port:
    """Return a port that reports ``<name>.<method>:before`` and ``:after`` of each call."""
    return cast("Port", _Watched(port, name, reached))


def watched_plan_ports(ports: PlanPorts, reached: Reached) -> PlanPorts:
    """Watches what the plan step reads and writes."""
    return replace(
        ports,
        ledger=watched(ports.ledger, "plan.ledger", reached),
        log=watched(ports.log, "plan.log", reached),
        target=watched(ports.target, "plan.target", reached),
    )


def watched_load_ports(ports: LoadPorts, reached: Reached) -> LoadPorts:
    """Watches what the load step reads and writes."""
    return replace(
        ports,
        ledger=watched(ports.ledger, "load.ledger", reached),
        log=watched(ports.log, "load.log", reached),
        staging=watched(ports.staging, "load.staging", reached),
        runner=watched(ports.runner, "load.runner", reached),
        publisher=_WatchedPublisher(ports.publisher, reached),
        evolution=watched(ports.evolution, "load.evolution", reached),
    )


class _Watched:
    def __init__(self, port: object, name: str, reached: Reached) -> None:
        self._port = port
        self._name = name
        self._reached = reached

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return reporting(getattr(self._port, method), f"{self._name}.{method}", self._reached)


def reporting(call: Callable[..., Any], name: str, reached: Reached) -> Callable[..., Any]:
    """Return a function that reports when ``call`` begins and ends."""

    def reported(*arguments: Any, **named: Any) -> Any:
        reached(f"{name}:before")
        answer = call(*arguments, **named)
        reached(f"{name}:after")
        return answer

    return reported


#: The statements of a fold that change something durable, where deletes remove rows. Others make the fold itself, in
#: temporary tables.
FOLD_WRITES = {
    "close_unread_dead_letters",
    "create_rebuilt_table",
    "delete_read_dead_letters",
    "fold_forget_removed",
    "fold_insert_rows",
    "fold_remember_removed",
    "fold_remove_rows",
    "fold_update_rows",
    "forget_removed_keys",
    "let_go_removed",
    "let_go_rows",
    "replace_table",
    "sweep_removed",
    "sweep_rows",
}


def watched_fold(name: str, reached: Reached) -> Callable[..., Any]:
    """Return a function by which the fold runs its statements, reporting ``load.fold.<statement>``."""
    run: Callable[..., Any] = getattr(current_state, name)

    def reported(cursor: Any, query: str, *arguments: Any, **parameters: Any) -> Any:
        call = reporting(run, f"load.fold.{query}", reached) if query in FOLD_WRITES else run
        return call(cursor, query, *arguments, **parameters)

    return reported


class _WatchedPublisher:
    """``begin`` has happened when the transaction is open, not when the context manager was made."""

    def __init__(self, publisher: Publisher, reached: Reached) -> None:
        self._publisher = publisher
        self._reached = reached

    @contextmanager
    def begin(self, batch: Batch) -> Iterator[Publication]:
        self._reached("load.publisher.begin:before")
        with self._publisher.begin(batch) as publication:
            self._reached("load.publisher.begin:after")
            yield watched(publication, "load.publication", self._reached)


def watched_stage_task(reached: Reached) -> Callable[..., StageResult]:
    """Return the staging task, reporting ``load.task.stage`` and each ``load.task.copy``: before, middle, after."""
    writer = _watched_writer(reached)

    def watched_task(task: StageTask, context: Any, attempt_id: int, **more: Any) -> StageResult:
        with patch.object(stage, "StagingWriter", writer):
            result = stage_task(task, context, attempt_id, **more)
        reached("load.task.stage:after")
        return result

    return watched_task


def _watched_writer(reached: Reached) -> type[StagingWriter]:
    class WatchedWriter(StagingWriter):
        def __init__(self, connection: Any, *arguments: Any) -> None:
            super().__init__(_Copying(connection, reached), *arguments)

    return WatchedWriter


class _Copying:
    """A connection whose cursors report every COPY."""

    def __init__(self, connection: Any, reached: Reached) -> None:
        self._connection = connection
        self._reached = reached

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def cursor(self) -> _CopyingCursor:
        return _CopyingCursor(self._connection.cursor(), self._reached)


class _CopyingCursor:
    def __init__(self, cursor: Any, reached: Reached) -> None:
        self._cursor = cursor
        self._reached = reached

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def copy_expert(self, statement: Any, file: Any, size: int = 8192) -> None:
        self._reached("load.task.copy:before")
        self._cursor.copy_expert(statement, _Halves(file.read(), self._reached), size=size)
        self._reached("load.task.copy:after")


class _Halves(io.RawIOBase):
    """Bytes that are read in two halves, with an event between them."""

    def __init__(self, content: bytes, reached: Reached) -> None:
        middle = len(content) // 2
        self._parts: Sequence[bytes] = (content[:middle], content[middle:])
        self._reached = reached
        self._part = 0
        self._file = io.BytesIO(self._parts[0])

    def read(self, size: int = -1) -> bytes:
        if found := self._file.read(size):
            return found
        if self._part == 1:
            return b""
        self._reached("load.task.copy:middle")
        self._part, self._file = 1, io.BytesIO(self._parts[1])
        return self._file.read(size)
