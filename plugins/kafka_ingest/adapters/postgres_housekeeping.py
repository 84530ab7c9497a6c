"""The port ``Housekeeper`` on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

import psycopg2

from kafka_ingest.adapters.postgres_connection import (
    Connection,
    TransactionLimits,
    connect,
    database_faults,
    server_message,
    transaction,
)
from kafka_ingest.adapters.postgres_migrations import require_current_ledger
from kafka_ingest.adapters.postgres_rows import fetch_row, fetch_rows, run_query
from kafka_ingest.adapters.postgres_staging import DROP_LIMITS, STAYS, drop_staging_table
from kafka_ingest.core.batch import BatchState
from kafka_ingest.core.housekeeping import StagingTable


class PostgresHousekeeper:
    """Tidies one database.

    Args:
        params: Keyword arguments of ``psycopg2.connect``.
        drop_limits: How long a table that is in use, or an index that is being vacuumed, is waited for.
    """

    def __init__(self, params: Mapping[str, object], drop_limits: TransactionLimits = DROP_LIMITS) -> None:
        self._params = params
        self._drop_limits = drop_limits

    def staging_tables(self) -> Sequence[StagingTable]:
        """Lists the staging tables with what the ledger says of their batches, seen at one moment."""
        with self._connection("list staging tables") as connection, transaction(connection) as cursor:
            require_current_ledger(cursor)
            return [
                StagingTable(
                    name=row["name"],
                    batch_id=row["batch_id"],
                    claim=row["claim"],
                    batch_state=BatchState(row["batch_state"]) if row["batch_state"] else None,
                    batch_claim=row["batch_claim"],
                )
                for row in fetch_rows(cursor, "list_staging_tables")
            ]

    def drop_staging_table(self, name: str) -> str:
        """Drops a table, or gives the reason why it stays."""
        with self._connection("drop a staging table") as connection:
            return drop_staging_table(connection, name, self._drop_limits)

    def delete_superseded_ranges(self, older_than_days: int, *, is_dry_run: bool) -> int:
        """Deletes ranges, or in a dry run takes the deletion back; gives their number."""
        with self._connection("delete ranges of superseded batches") as connection:
            with transaction(connection) as cursor:
                cursor.execute("SAVEPOINT nothing_deleted")
                count = run_query(cursor, "delete_superseded_ranges", older_than_days=older_than_days)
                if is_dry_run:
                    cursor.execute("ROLLBACK TO SAVEPOINT nothing_deleted")
            return count

    def brin_indexes(self) -> Sequence[str]:
        """Lists the BRIN indexes of the pipelines' targets and of their partitions, quoted, with their schemas."""
        with self._connection("list BRIN indexes") as connection, transaction(connection) as cursor:
            return [row["index_name"] for row in fetch_rows(cursor, "list_brin_indexes")]

    def summarize(self, index: str) -> int | str:
        """Summarises what is not yet; gives the number of page ranges, or the reason why it was left."""
        with self._connection("summarise a BRIN index") as connection:
            try:
                with transaction(connection, self._drop_limits) as cursor:
                    row = fetch_row(cursor, "summarize_brin_index", index=index)
            except psycopg2.Error as error:
                if error.pgcode not in STAYS:
                    raise
                return server_message(error)
            return row["page_ranges"] if row and row["page_ranges"] is not None else "the index is gone"

    @contextmanager
    def _connection(self, doing: str) -> Iterator[Connection]:
        with (
            closing(connect(self._params, application_name="kafka_ingest housekeeping")) as connection,
            database_faults(doing),
        ):
            yield connection
