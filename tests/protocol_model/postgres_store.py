"""The database of the model as a real PostgreSQL: the same rules, the ports that production uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg2
from psycopg2 import errors, sql

from kafka_ingest.postgres.database import TransactionLimits
from kafka_ingest.protocol.batch import BatchState
from kafka_ingest.protocol.position import Position
from kafka_ingest.settings import PROTOCOL_VERSION
from tests.contracts.ledger_worlds import PostgresWorld
from tests.fakes.database import StoredRecord
from tests.protocol_model.stores import BatchLine

#: Whoever stands still with a lock stands still for good: waiting for it changes nothing.
_IMPATIENT = TransactionLimits(lock_timeout_seconds=0.05)

_LEDGER_TABLES = (
    "pipeline",
    "served_topic",
    "batch",
    "batch_hold",
    "committed_offset",
    "batch_partition",
    "dead_letter",
    "dead_letter_request",
    "position_change",
    "removed_key",
    "schema_change",
)


class PostgresStore(PostgresWorld):
    """In PostgreSQL.

    Args:
        params: Keyword arguments of ``psycopg2.connect``, of a role that may do everything.
    """

    incarnation = 0

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._administrator = psycopg2.connect(**params)
        self._administrator.autocommit = True
        super().__init__(params, _IMPATIENT)
        # Neither triggers nor foreign keys: a restore and a new schedule put rows there as they were.
        self.run("SET session_replication_role = replica")

    def run(self, statement: str | sql.Composable, parameters: Any = ()) -> list[tuple[Any, ...]]:
        with self._administrator.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def emptied(self) -> PostgresStore:
        """Make room for the next schedule."""
        self.run(sql.SQL("; ").join(sql.SQL("DELETE FROM {}").format(table) for table in _tables()))
        for table in self._staging_tables():
            self.run(sql.SQL("DROP TABLE {}").format(table))
        self.run("ALTER TABLE shop.orders DROP COLUMN IF EXISTS note, DROP COLUMN IF EXISTS total")
        return self

    def close(self) -> None:
        self._administrator.close()

    def positions(self) -> Sequence[Position]:
        found = self.run(
            "SELECT topic, partition, generation, topic_id, cluster_id, committed_offset, loaded_to, line, leader_epoch"
            " FROM kafka_ingest.committed_offset ORDER BY topic, partition"
        )
        return [Position(*row) for row in found]

    def standing_dead_letters(self) -> list[StoredRecord]:
        found = self.run(
            'SELECT topic, generation, partition, "offset", batch_id, reason FROM kafka_ingest.dead_letter'
            " WHERE resolution IS DISTINCT FROM 'replayed'"
        )
        return [StoredRecord(*row) for row in found]

    def batches(self) -> list[BatchLine]:
        found = self.run(
            "SELECT batch_id::text, dag_id, run_id, task_group, map_index, request_number, state, claim,"
            " announced_at IS NOT NULL FROM kafka_ingest.batch ORDER BY ordinal"
        )
        return [BatchLine(row[0], row[1:6], BatchState(row[6]), row[7], row[8]) for row in found]

    def fingerprint(self) -> object:
        return None

    def advance(self, seconds: float) -> None:
        """Move the holds instead of the clock.

        A connection that was closed gives its locks back within the second; whoever stands still with the lock of a
        hold keeps it: that hold is about to go anyway.
        """
        self.run("SET lock_timeout = '1s'")
        try:
            self._move_holds(seconds, "FOR UPDATE")
        except errors.LockNotAvailable:
            self._move_holds(seconds, "FOR UPDATE SKIP LOCKED")
        self.run("SET lock_timeout = 0")

    def _move_holds(self, seconds: float, lock: str) -> None:
        self.run(
            "UPDATE kafka_ingest.batch_hold SET hold_until = hold_until - make_interval(secs => %s) WHERE batch_id IN"
            f" (SELECT batch_id FROM kafka_ingest.batch_hold {lock})",
            [seconds],
        )

    def plan_was_of_another_version(self, batch_id: str) -> None:
        self.run(
            "UPDATE kafka_ingest.batch SET protocol_version = %s WHERE batch_id IN"
            " (SELECT batch_id FROM kafka_ingest.batch WHERE batch_id = %s FOR UPDATE SKIP LOCKED)",
            [PROTOCOL_VERSION + 1, batch_id],
        )

    def recover(self) -> None:
        self.incarnation += 1
        for table in self._staging_tables():
            self.run(sql.SQL("DELETE FROM {}").format(table))

    def save(self) -> object:
        """Keep the copy in temporary tables: there is one copy at a time."""
        statement = sql.SQL("DROP TABLE IF EXISTS {copy}; CREATE TEMPORARY TABLE {copy} AS TABLE {table}")
        pairs = zip(_tables(), _COPIES, strict=True)
        self.run(sql.SQL("; ").join(statement.format(table=table, copy=copy) for table, copy in pairs))
        return None

    def restore(self, saved: Any) -> None:
        for table, copy in zip(_tables(), _COPIES, strict=True):
            columns = sql.SQL(", ").join(self._stored_columns(table, copy))
            self.run(sql.SQL("DELETE FROM {}").format(table))
            self.run(
                sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {}").format(
                    table, columns, columns, copy
                )
            )
        self.recover()

    def _stored_columns(self, table: sql.Identifier, copy: sql.Identifier) -> list[sql.Identifier]:
        """Return what a copy has: columns that were added since stay, and somebody else has added them."""
        schema, name = table.strings
        found = self.run(
            "SELECT column_name FROM information_schema.columns AS t JOIN information_schema.columns AS c"
            " USING (column_name) WHERE t.table_schema = %s AND t.table_name = %s AND t.is_generated = 'NEVER'"
            " AND c.table_name = %s",
            [schema, name, *copy.strings],
        )
        return [sql.Identifier(column) for (column,) in found]

    def _staging_tables(self) -> list[sql.Identifier]:
        found = self.run("SELECT tablename FROM pg_tables WHERE schemaname = 'kafka_ingest_staging'")
        return [sql.Identifier("kafka_ingest_staging", name) for (name,) in found]


def _tables() -> list[sql.Identifier]:
    return [*(sql.Identifier("kafka_ingest", name) for name in _LEDGER_TABLES), sql.Identifier("shop", "orders")]


_COPIES = [sql.Identifier(f"copy_of_{table.strings[-1]}") for table in _tables()]
