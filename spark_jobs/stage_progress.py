"""Tells the driver how far a task is, on a connection of its own: the task's rows are invisible until it commits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from psycopg2 import sql

from kafka_ingest.adapters.postgres_staging import staging_table
from kafka_ingest.adapters.sql_files import sql_text

#: Often enough for a log line every few seconds, rare enough to cost nothing.
INTERVAL_SECONDS = 2.0


class StageProgressReport:
    """Writes the row of one task attempt.

    Args:
        connection: Connection for nothing else; it is set to autocommit.
        stem: Stem of the names of the attempt's staging tables.
        stage_task: Index of the Spark task.
        stage_attempt: Spark's id of the task attempt.
        monotonic: Clock in seconds.
    """

    def __init__(
        self,
        connection: Any,
        stem: str,
        *,
        stage_task: int,
        stage_attempt: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        connection.autocommit = True
        self._cursor = connection.cursor()
        statement = sql.SQL(sql_text("queries/record_staging_progress"))
        self._statement = statement.format(progress=staging_table(stem, "progress"))
        self._tag = {"stage_task": stage_task, "stage_attempt": stage_attempt}
        self._place: dict[str, str | int | None] = dict.fromkeys(("topic", "partition", "first_offset", "end_offset"))
        self._monotonic = monotonic
        self._next = monotonic() + INTERVAL_SECONDS

    def begin(self, topic: str, partition: int, offsets: tuple[int, int], *, staged: tuple[int, int]) -> None:
        """Says before each chunk at which records the task is: should they kill its process, they can be named.

        Args:
            topic: Their topic.
            partition: Their partition.
            offsets: The first offset, and the one past the last.
            staged: Records staged and offsets passed before them.
        """
        self._place = {"topic": topic, "partition": partition, "first_offset": offsets[0], "end_offset": offsets[1]}
        self.tell(*staged)

    def end(self, records: int, offsets: int) -> None:
        """Writes the last numbers: the task is at work no more."""
        self._place = dict.fromkeys(self._place)
        self.tell(records, offsets)

    def tell_sometimes(self, records: int, offsets: int) -> None:
        """Writes the numbers unless it did so less than two seconds ago."""
        if self._monotonic() >= self._next:
            self.tell(records, offsets)

    def tell(self, records: int, offsets: int) -> None:
        """Writes the numbers now: records staged and offsets passed by this attempt. Durable on return."""
        self._cursor.execute(self._statement, {**self._tag, **self._place, "records": records, "offsets": offsets})
        self._next = self._monotonic() + INTERVAL_SECONDS
