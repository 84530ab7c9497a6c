"""A rebuild into a new table: it takes the name of the target in the transaction that fills it."""

from __future__ import annotations

from psycopg2 import sql

from kafka_ingest.errors import TargetMismatch
from kafka_ingest.postgres.database import Cursor, fetch_rows, run_query
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.target import kept_table, written_columns
from kafka_ingest.settings import BatchSettings, TargetSettings


def require_replaceable(cursor: Cursor, settings: BatchSettings) -> None:
    """Refuse a target that a new table of its name could not stand for.

    Raises:
        TargetMismatch: Lists everything that a new table would not have, or that holds the old one.
    """
    target, written = settings.target, [column.name for column in written_columns(settings)]
    names = {"schema": target.schema, "table": target.table}
    found = fetch_rows(cursor, "replaceable_table", **names, written=written)
    if found:
        listed = "".join(f"\n    {row['subject']}: expected {row['expected']}; found {row['found']}" for row in found)
        raise TargetMismatch(
            f"the table {target} cannot be replaced by a new one",
            expected="a table of its own, which nothing else holds, with nothing that a new one would not have",
            found=listed,
            next_command="rebuild it in place, without --into-new-table, which nobody sees half done, either",
        )


class RebuiltTable:
    """The new table of one publish. psycopg2's errors pass through.

    Args:
        cursor: The transaction.
        batch: The batch that fills it.
    """

    def __init__(self, cursor: Cursor, batch: Batch) -> None:
        self._cursor = cursor
        self._settings = batch.settings
        target = batch.settings.target
        #: What the batch writes into, until it takes the target's name.
        self.target = TargetSettings(target.schema, f"kafka_ingest_rebuilt_{batch.batch_id.replace('-', '')}")
        self._kept = kept_table(target, batch.batch_id)
        self._suffix = f"_{batch.batch_id[:8]}"
        #: Identifiers of the SQL files.
        self.names: dict[str, sql.Composable] = {
            "replaced": sql.Identifier(target.schema, target.table),
            "rebuilt": sql.Identifier(self.target.schema, self.target.table),
            "kept_as": sql.Identifier(self._kept.table),
            "table": sql.Identifier(target.table),
        }

    def set_up(self) -> None:
        """Give the new table what ``CREATE TABLE ... LIKE`` has not copied."""
        target = self._settings.target
        self._execute("rebuilt_table_settings", schema=target.schema, table=target.table, rebuilt=self.target.table)

    def lock_replaced(self) -> None:
        """Lock the old table, and look again whether it can be replaced.

        Raises:
            TargetMismatch: It cannot.
        """
        run_query(self._cursor, "lock_replaced_table", self.names)
        require_replaceable(self._cursor, self._settings)

    def name_indexes(self) -> None:
        """Give the indexes the names that they had, once the new table has its name."""
        target, kept = self._settings.target, self._kept.table
        names = {"schema": target.schema, "table": target.table, "replaced": kept, "suffix": self._suffix}
        self._execute("rebuilt_index_names", **names)

    def _execute(self, query: str, **parameters: str) -> None:
        for row in fetch_rows(self._cursor, query, **parameters):
            self._cursor.execute(row["text"])
