"""Read-only questions to the ledger, for people and scripts. A standby answers them too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from kafka_ingest.adapters.postgres_connection import SNAPSHOT, connect, database_faults, transaction
from kafka_ingest.adapters.postgres_migrations import require_current_ledger
from kafka_ingest.adapters.sql_files import sql_text

#: One row as column name to value: numbers, text, ``datetime`` with UTC, ``bytes``, lists, ``None``.
Row = dict[str, Any]


class PostgresReports:
    """Lists what the ledger holds. Every method is one read-only transaction.

    Each raises ``DatabaseUnavailable`` when no server answers, and ``LedgerOutdated`` when the schema is not the one
    of this package.

    Args:
        params: Keyword arguments of ``psycopg2.connect``.
    """

    def __init__(self, params: Mapping[str, object]) -> None:
        self._params = params

    def status(self, pipelines: Sequence[str]) -> list[Row]:
        """Gives one row for each pipeline, in the order of the names."""
        return self._rows("report_status", {"pipelines": list(pipelines)})

    def batches(self, pipeline: str, limit: int) -> list[Row]:
        """Gives the newest batches, the newest first."""
        return self._rows("list_batches", {"pipeline": pipeline, "limit": limit})

    def dead_letters(self, pipeline: str, batch_id: str | None, limit: int) -> list[Row]:
        """Gives dead letters, those of the newest batch first, with their original bytes."""
        return self._rows("list_dead_letters", {"pipeline": pipeline, "batch_id": batch_id, "limit": limit})

    def _rows(self, query: str, parameters: Mapping[str, object]) -> list[Row]:
        with (
            closing(connect(self._params, application_name="kafka_ingest report", read_only=True)) as connection,
            database_faults("read the ledger"),
            transaction(connection, SNAPSHOT) as cursor,
        ):
            require_current_ledger(cursor)
            cursor.execute(sql_text(f"queries/{query}"), parameters)
            columns = [column.name for column in cursor.description or ()]
            return [dict(zip(columns, map(_plain, row), strict=True)) for row in cursor.fetchall()]


def _plain(value: Any) -> Any:
    """Turns the driver's buffers into bytes."""
    if isinstance(value, memoryview):
        return bytes(value)
    return [_plain(item) for item in value] if isinstance(value, list) else value
