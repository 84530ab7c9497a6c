"""The database of the model as a real PostgreSQL: the same rules, the ports that production uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg2
from psycopg2 import errors, sql
from psycopg2.extras import execute_values

from kafka_ingest.errors import StagingLost
from kafka_ingest.postgres.changes import PostgresPositionLedger, PostgresRollBackLedger
from kafka_ingest.postgres.database import TransactionLimits, connect, transaction
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.publisher import PostgresPublisher
from kafka_ingest.postgres.staging_tables import PostgresStaging
from kafka_ingest.protocol.batch import Batch, BatchState
from kafka_ingest.protocol.ports import Ledger, PositionLedger, Publisher, Staging
from kafka_ingest.protocol.position import Position
from kafka_ingest.protocol.roll_back import RollBackLedger
from kafka_ingest.protocol.staging import staging_name
from kafka_ingest.protocol.target import written_columns
from kafka_ingest.settings import PROTOCOL_VERSION
from tests.builders import batch_settings
from tests.fakes.database import StoredRecord
from tests.protocol_model.stores import BatchLine, Counted, Staged

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
    "position_change",
)


class PostgresStore:
    """A database of its own, with the target shop.orders of ``tests.builders.batch_settings``.

    Args:
        params: Keyword arguments of ``psycopg2.connect``, of a role that may do everything.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.ledger: Ledger = PostgresLedger(params, _IMPATIENT)
        self.publisher: Publisher = PostgresPublisher(params, _IMPATIENT)
        self.staging: Staging = PostgresStaging(params)
        self.changes: PositionLedger = PostgresPositionLedger(params, _IMPATIENT)
        self.roll_backs: RollBackLedger = PostgresRollBackLedger(params, _IMPATIENT)
        self.incarnation = 0
        self._params = params
        self._administrator = psycopg2.connect(**params)
        self._administrator.autocommit = True
        self._run("CREATE SCHEMA shop")
        columns = ", ".join(f"{column.name} {column.type}" for column in written_columns(batch_settings()))
        self._run(f"CREATE TABLE shop.orders ({columns})")
        # Neither triggers nor foreign keys: a restore and a new schedule put rows there as they were.
        self._run("SET session_replication_role = replica")

    def emptied(self) -> PostgresStore:
        """Makes room for the next schedule."""
        self._run(sql.SQL("; ").join(sql.SQL("DELETE FROM {}").format(table) for table in _tables()))
        for table in self._staging_tables():
            self._run(sql.SQL("DROP TABLE {}").format(table))
        return self

    def close(self) -> None:
        self._administrator.close()

    def stage(self, batch: Batch, staged: Sequence[Staged], counted: Sequence[Counted]) -> None:
        stem = staging_name(batch.batch_id, batch.claim)
        connection = connect(self._params, application_name="model task")
        try:
            with transaction(connection) as cursor:
                _insert_staged(cursor, stem, staged)
                _insert_counted(cursor, stem, counted)
        except errors.UndefinedTable as error:
            raise StagingLost("the staging tables of this attempt are gone", batch_id=batch.batch_id) from error
        finally:
            connection.close()

    def rows(self) -> list[StoredRecord]:
        found = self._run(
            "SELECT kafka_topic, kafka_generation, kafka_partition, kafka_offset, batch_id::text FROM shop.orders"
        )
        return [StoredRecord(*row) for row in found]

    def dead_letters(self) -> list[StoredRecord]:
        found = self._run(
            'SELECT topic, generation, partition, "offset", batch_id::text, reason FROM kafka_ingest.dead_letter'
        )
        return [StoredRecord(*row) for row in found]

    def positions(self) -> Sequence[Position]:
        found = self._run(
            "SELECT topic, partition, generation, topic_id, cluster_id, committed_offset, loaded_to, line, leader_epoch"
            " FROM kafka_ingest.committed_offset ORDER BY topic, partition"
        )
        return [Position(*row) for row in found]

    def batches(self) -> list[BatchLine]:
        found = self._run(
            "SELECT batch_id::text, dag_id, run_id, task_group, map_index, request_number, state, claim,"
            " announced_at IS NOT NULL FROM kafka_ingest.batch ORDER BY ordinal"
        )
        return [BatchLine(row[0], row[1:6], BatchState(row[6]), row[7], row[8]) for row in found]

    def fingerprint(self) -> object:
        return None

    def advance(self, seconds: float) -> None:
        """Moves the holds instead of the clock.

        A connection that was closed gives its locks back within the second; whoever stands still with the lock of a
        hold keeps it: that hold is about to go anyway.
        """
        self._run("SET lock_timeout = '1s'")
        try:
            self._move_holds(seconds, "FOR UPDATE")
        except errors.LockNotAvailable:
            self._move_holds(seconds, "FOR UPDATE SKIP LOCKED")
        self._run("SET lock_timeout = 0")

    def _move_holds(self, seconds: float, lock: str) -> None:
        self._run(
            "UPDATE kafka_ingest.batch_hold SET hold_until = hold_until - make_interval(secs => %s) WHERE batch_id IN"
            f" (SELECT batch_id FROM kafka_ingest.batch_hold {lock})",
            seconds,
        )

    def plan_was_of_another_version(self, batch_id: str) -> None:
        self._run(
            "UPDATE kafka_ingest.batch SET protocol_version = %s WHERE batch_id IN"
            " (SELECT batch_id FROM kafka_ingest.batch WHERE batch_id = %s FOR UPDATE SKIP LOCKED)",
            PROTOCOL_VERSION + 1,
            batch_id,
        )

    def recover(self) -> None:
        self.incarnation += 1
        for table in self._staging_tables():
            self._run(sql.SQL("DELETE FROM {}").format(table))

    def save(self) -> object:
        """Keeps the copy in temporary tables: there is one copy at a time."""
        statement = sql.SQL("DROP TABLE IF EXISTS {copy}; CREATE TEMPORARY TABLE {copy} AS TABLE {table}")
        pairs = zip(_tables(), _COPIES, strict=True)
        self._run(sql.SQL("; ").join(statement.format(table=table, copy=copy) for table, copy in pairs))
        return None

    def restore(self, saved: Any) -> None:
        for table, copy in zip(_tables(), _COPIES, strict=True):
            columns = sql.SQL(", ").join(self._stored_columns(table))
            self._run(sql.SQL("DELETE FROM {}").format(table))
            self._run(
                sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {}").format(
                    table, columns, columns, copy
                )
            )
        self.recover()

    def _stored_columns(self, table: sql.Identifier) -> list[sql.Identifier]:
        schema, name = table.strings
        found = self._run(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = %s AND is_generated = 'NEVER'",
            schema,
            name,
        )
        return [sql.Identifier(column) for (column,) in found]

    def _staging_tables(self) -> list[sql.Identifier]:
        found = self._run("SELECT tablename FROM pg_tables WHERE schemaname = 'kafka_ingest_staging'")
        return [sql.Identifier("kafka_ingest_staging", name) for (name,) in found]

    def _run(self, statement: str | sql.Composable, *parameters: object) -> list[tuple[Any, ...]]:
        with self._administrator.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []


def _tables() -> list[sql.Identifier]:
    return [*(sql.Identifier("kafka_ingest", name) for name in _LEDGER_TABLES), sql.Identifier("shop", "orders")]


_COPIES = [sql.Identifier(f"copy_of_{table.strings[-1]}") for table in _tables()]


def _insert_staged(cursor: Any, stem: str, staged: Sequence[Staged]) -> None:
    execute_values(
        cursor,
        f"INSERT INTO kafka_ingest_staging.{stem}_rows (stage_task, stage_attempt, kafka_topic, kafka_generation,"
        " kafka_partition, kafka_offset, batch_id) VALUES %s",
        [(task, number, *_place(r), r.batch_id) for task, number, r in staged if r.reason is None],
    )
    execute_values(
        cursor,
        f"INSERT INTO kafka_ingest_staging.{stem}_dead_letters (stage_task, stage_attempt, topic, generation,"
        ' partition, "offset", reason, detail) VALUES %s',
        [(task, number, *_place(r), r.reason, "of the model") for task, number, r in staged if r.reason is not None],
    )


def _insert_counted(cursor: Any, stem: str, counted: Sequence[Counted]) -> None:
    """The table is there only where something may be replaced, as for the real tasks."""
    execute_values(
        cursor,
        f"INSERT INTO kafka_ingest_staging.{stem}_counted (stage_task, stage_attempt, topic, generation, partition,"
        ' "offset") VALUES %s',
        [(task, number, *identity) for task, number, identity in counted],
    )


def _place(record: StoredRecord) -> tuple[str, int, int, int]:
    return (record.topic, record.generation, record.partition, record.offset)
