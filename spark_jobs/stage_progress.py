"""Tells the driver how far a task is, on a connection of its own: the task's rows are invisible until it commits.

A courtesy: what goes wrong here is logged, and never fails the task.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import psycopg2
from psycopg2 import sql

from kafka_ingest.adapters.postgres_connection import Connection, TransactionLimits, server_message, transaction
from kafka_ingest.adapters.postgres_staging import staging_table
from kafka_ingest.adapters.sql_files import sql_text
from kafka_ingest.core.errors import IngestError

_log = logging.getLogger(__name__)

#: Often enough for a log line every few seconds, rare enough to cost nothing.
INTERVAL_SECONDS = 2.0
#: A server that answers slowly, or has no connection left, holds a task up no more often than this.
_INTERVAL_AFTER_FAULT_SECONDS = 30.0
#: The row is the task's own: only a table that is being dropped keeps it waiting.
_LIMITS = TransactionLimits(lock_timeout_seconds=1)


class StageProgressReport:
    """Writes the row of one task attempt.

    Args:
        connect: Opens a connection for nothing else. It is asked again after a fault, as when the server ended a
            session that was idle between two chunks (``idle_session_timeout``).
        stem: Stem of the names of the attempt's staging tables.
        stage_task: Index of the Spark task.
        stage_attempt: Spark's id of the task attempt.
        monotonic: Clock in seconds.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        stem: str,
        *,
        stage_task: int,
        stage_attempt: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        statement = sql.SQL(sql_text("queries/record_staging_progress"))
        self._statement = statement.format(progress=staging_table(stem, "progress"))
        self._tag = {"stage_task": stage_task, "stage_attempt": stage_attempt}
        self._place: dict[str, str | int | None] = dict.fromkeys(("topic", "partition", "first_offset", "end_offset"))
        self._monotonic = monotonic
        self._next = monotonic() + INTERVAL_SECONDS
        self._last_was_told = True

    def close(self) -> None:
        """Closes the connection; the next report opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def begin(self, topic: str, partition: int, offsets: tuple[int, int], *, staged: tuple[int, int]) -> None:
        """Says before each chunk at which records the task is: should they kill its process, they can be named.

        Args:
            topic: Their topic.
            partition: Their partition.
            offsets: The first offset, and the one past the last.
            staged: Records staged and offsets passed before them.
        """
        self._place = {"topic": topic, "partition": partition, "first_offset": offsets[0], "end_offset": offsets[1]}
        if self._last_was_told:
            self.tell(*staged)
        else:
            self.tell_sometimes(*staged)

    def end(self, records: int, offsets: int) -> None:
        """Writes the last numbers: the task is at work no more."""
        self._place = dict.fromkeys(self._place)
        self.tell(records, offsets)

    def tell_sometimes(self, records: int, offsets: int) -> None:
        """Writes the numbers unless it did so less than two seconds ago."""
        if self._monotonic() >= self._next:
            self.tell(records, offsets)

    def tell(self, records: int, offsets: int) -> None:
        """Writes the numbers now: records staged and offsets passed by this attempt. Durable on return, or logged."""
        try:
            self._write({**self._tag, **self._place, "records": records, "offsets": offsets})
        except (psycopg2.Error, IngestError) as error:
            reason = server_message(error) if isinstance(error, psycopg2.Error) else error.found
            _log.warning("the progress of a task was not told, the task goes on: %s", reason)
            self.close()
            self._last_was_told = False
        else:
            self._last_was_told = True
        self._next = self._monotonic() + (INTERVAL_SECONDS if self._last_was_told else _INTERVAL_AFTER_FAULT_SECONDS)

    def _write(self, values: dict[str, object]) -> None:
        if self._connection is None:
            self._connection = self._connect()
        with transaction(self._connection, _LIMITS) as cursor:
            cursor.execute(self._statement, values)
