"""A ledger, a publisher, staging and a target in two kinds: in memory, and in a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Protocol

import psycopg2
import pytest
from psycopg2 import sql
from psycopg2.extras import execute_values

from kafka_ingest.postgres.changes import PostgresPositionLedger, PostgresRollBackLedger
from kafka_ingest.postgres.database import TransactionLimits
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.publisher import PostgresPublisher
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.ports import Ledger, PositionLedger, Publisher
from kafka_ingest.protocol.position import Position
from kafka_ingest.protocol.roll_back import RollBackLedger
from kafka_ingest.protocol.staging import staging_name, written_columns
from tests.builders import batch_settings
from tests.fakes.database import FakeDatabase, StoredRecord
from tests.fakes.ledger import FakeLedger, FakePositionLedger
from tests.fakes.publisher import FakePublisher
from tests.fakes.roll_back import FakeRollBackLedger

#: Locks that a test holds on purpose are waited for only this long.
IMPATIENT = TransactionLimits(lock_timeout_seconds=0.2)

Staged = tuple[int, int, StoredRecord]


class LedgerWorld(Protocol):
    """What a contract test needs beside the ports."""

    ledger: Ledger
    publisher: Publisher
    roll_backs: RollBackLedger
    changes: PositionLedger

    def stage(self, batch: Batch, staged: Sequence[Staged]) -> None:
        """Puts records of (task, attempt) into the attempt's staging."""

    def stage_counted(self, batch: Batch, counted: Sequence[StoredRecord]) -> None:
        """Puts identities of records that are only counted into the attempt's staging, as of task 0, attempt 7."""

    def resolve(self, *offsets: int) -> None:
        """Marks dead letters as resolved, and puts the rows that they were turned into into the target."""

    def rows(self) -> list[StoredRecord]:
        """Reads the target, by identity."""

    def dead_letters(self) -> list[StoredRecord]:
        """Reads the dead letters, by identity."""

    def delete_row(self, offset: int) -> None:
        """Deletes the row of an offset, as somebody else might."""

    def add_unique_offset(self, name: str) -> None:
        """Gives the target a unique constraint on the offset alone, and a row with offset 0 of another topic."""

    def refuse(self, name: str, *offsets: int) -> None:
        """Gives the target a CHECK that refuses rows of these offsets, which staging has not."""

    def swallow(self, name: str, *offsets: int) -> None:
        """Gives the target a trigger that drops rows of these offsets without a word."""

    def reset(self, position: Position) -> None:
        """Puts a position elsewhere, as a position change does."""

    def let_time_pass(self) -> None:
        """Lets the ledger's clock go on; that of PostgreSQL does so by itself."""


def world_of(request: pytest.FixtureRequest) -> LedgerWorld:
    """Gives the world that the fixture's parameter names; ``postgresql`` takes the fixture ``database``."""
    if request.param == "fake":
        return FakeWorld()
    return PostgresWorld(request.getfixturevalue("database"))


class FakeWorld:
    def __init__(self) -> None:
        self.database = FakeDatabase()
        self.ledger: Ledger = FakeLedger(self.database)
        self.roll_backs: RollBackLedger = FakeRollBackLedger(self.database)
        self.changes: PositionLedger = FakePositionLedger(self.database)
        self._publisher = FakePublisher(self.database)
        self.publisher: Publisher = self._publisher

    def stage(self, batch: Batch, staged: Sequence[Staged]) -> None:
        self.database.staged[batch.batch_id, batch.claim] = list(staged)

    def stage_counted(self, batch: Batch, counted: Sequence[StoredRecord]) -> None:
        identities = [(0, 7, (r.topic, r.generation, r.partition, r.offset)) for r in counted]
        self.database.counted[batch.batch_id, batch.claim] = identities

    def resolve(self, *offsets: int) -> None:
        for letter in (found for found in self.database.dead_letters if found.offset in offsets):
            self.database.resolved.add((letter.topic, letter.generation, letter.partition, letter.offset))
            self.database.rows.append(replace(letter, reason=None))

    def rows(self) -> list[StoredRecord]:
        return sorted(self.database.rows, key=lambda r: (r.topic, r.generation, r.partition, r.offset))

    def dead_letters(self) -> list[StoredRecord]:
        return sorted(self.database.dead_letters, key=lambda r: (r.topic, r.generation, r.partition, r.offset))

    def delete_row(self, offset: int) -> None:
        self.database.rows = [row for row in self.database.rows if row.offset != offset]

    def add_unique_offset(self, name: str) -> None:
        self._publisher.refused_by = name

    def refuse(self, name: str, *offsets: int) -> None:
        self._publisher.refused_offsets = dict.fromkeys(offsets, name)

    def swallow(self, name: str, *offsets: int) -> None:
        self._publisher.swallowed_offsets = dict.fromkeys(offsets, name)

    def reset(self, position: Position) -> None:
        self.database.positions["orders", position.topic_partition] = position
        self.database.bound_timelines["orders", position.topic_partition] = position.timeline

    def let_time_pass(self) -> None:
        self.database.advance(1)


class PostgresWorld:
    """Uses the target table shop.orders of ``tests.builders.batch_settings``: raw payload and metadata."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = dict(params)
        self.ledger: Ledger = PostgresLedger(params, IMPATIENT)
        self.publisher: Publisher = PostgresPublisher(params, IMPATIENT)
        self.roll_backs: RollBackLedger = PostgresRollBackLedger(params, IMPATIENT)
        self.changes: PositionLedger = PostgresPositionLedger(params, IMPATIENT)
        self.run("CREATE SCHEMA shop")
        self.run(f"CREATE TABLE shop.orders ({_column_definitions()})")

    def run(self, statement: str | sql.Composable, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Runs one statement in a transaction of its own; gives its rows."""
        with closing(psycopg2.connect(**self.params)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def stage(self, batch: Batch, staged: Sequence[Staged]) -> None:
        stem = staging_name(batch.batch_id, batch.claim)
        tags = "stage_task integer NOT NULL, stage_attempt bigint NOT NULL"
        self.run(f"CREATE UNLOGGED TABLE kafka_ingest_staging.{stem}_rows ({_column_definitions()}, {tags})")
        self.run(
            f"CREATE UNLOGGED TABLE kafka_ingest_staging.{stem}_dead_letters (topic text, generation integer,"
            ' partition integer, "offset" bigint, record_time_ms bigint, record_time_type text, key bytea,'
            f" value bytea, header_names text[], header_values bytea[], reason text, detail text, {tags})"
        )
        self.run(
            f"CREATE UNLOGGED TABLE kafka_ingest_staging.{stem}_counted (topic text, generation integer,"
            f' partition integer, "offset" bigint, {tags})'
        )
        with closing(psycopg2.connect(**self.params)) as connection, connection, connection.cursor() as cursor:
            _insert_staged(cursor, stem, staged)

    def stage_counted(self, batch: Batch, counted: Sequence[StoredRecord]) -> None:
        stem = staging_name(batch.batch_id, batch.claim)
        for r in counted:
            self.run(
                f"INSERT INTO kafka_ingest_staging.{stem}_counted VALUES (%s, %s, %s, %s, 0, 7)",
                (r.topic, r.generation, r.partition, r.offset),
            )

    def resolve(self, *offsets: int) -> None:
        self.run(
            "UPDATE kafka_ingest.dead_letter SET resolved_at = now(), resolution = 'by hand'"
            ' WHERE "offset" = ANY (%s)',
            (list(offsets),),
        )
        self.run(
            "INSERT INTO shop.orders (kafka_topic, kafka_generation, kafka_partition, kafka_offset, batch_id)"
            ' SELECT topic, generation, partition, "offset", batch_id FROM kafka_ingest.dead_letter'
            ' WHERE "offset" = ANY (%s)',
            (list(offsets),),
        )

    def rows(self) -> list[StoredRecord]:
        found = self.run(
            "SELECT kafka_topic, kafka_generation, kafka_partition, kafka_offset, batch_id FROM shop.orders"
            " ORDER BY kafka_topic, kafka_generation, kafka_partition, kafka_offset"
        )
        return [StoredRecord(*row) for row in found]

    def dead_letters(self) -> list[StoredRecord]:
        found = self.run(
            'SELECT topic, generation, partition, "offset", batch_id, reason FROM kafka_ingest.dead_letter'
            ' ORDER BY topic, generation, partition, "offset"'
        )
        return [StoredRecord(*row) for row in found]

    def delete_row(self, offset: int) -> None:
        self.run("DELETE FROM shop.orders WHERE kafka_offset = %s", (offset,))

    def add_unique_offset(self, name: str) -> None:
        self.run(f"ALTER TABLE shop.orders ADD CONSTRAINT {name} UNIQUE (kafka_offset)")
        self.run(
            "INSERT INTO shop.orders (kafka_topic, kafka_generation, kafka_partition, kafka_offset, batch_id)"
            " VALUES ('another', 0, 0, 0, gen_random_uuid())"
        )

    def refuse(self, name: str, *offsets: int) -> None:
        listed = ", ".join(map(str, offsets))
        self.run(f"ALTER TABLE shop.orders ADD CONSTRAINT {name} CHECK (kafka_offset NOT IN ({listed}))")

    def swallow(self, name: str, *offsets: int) -> None:
        listed = ", ".join(map(str, offsets))
        self.run(
            "CREATE FUNCTION shop.swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF new.kafka_offset IN ({listed}) THEN RETURN NULL; END IF; RETURN new; END $$"
        )
        self.run(f"CREATE TRIGGER {name} BEFORE INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.swallow()")

    def reset(self, position: Position) -> None:
        where = {"topic": position.topic, "partition": position.partition, "line": position.timeline}
        values = {**where, "committed_offset": position.committed_offset, "loaded_to": position.loaded_to}
        with closing(psycopg2.connect(**self.params)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(
                "UPDATE kafka_ingest.committed_offset SET committed_offset = %(committed_offset)s, line = %(line)s,"
                " loaded_to = %(loaded_to)s WHERE topic = %(topic)s AND partition = %(partition)s",
                values,
            )
            cursor.execute(
                "INSERT INTO kafka_ingest.position_change (request_id, kind, pipeline, topic, partition, who, why,"
                " to_offset, to_generation, to_line) VALUES (gen_random_uuid(), 'reset', 'orders', %(topic)s,"
                " %(partition)s, 'operator', 'test', %(committed_offset)s, 0, %(line)s)",
                values,
            )

    def let_time_pass(self) -> None: ...


def _column_definitions() -> str:
    return ", ".join(f"{column.name} {column.type}" for column in written_columns(batch_settings()))


def _insert_staged(cursor: Any, stem: str, staged: Sequence[Staged]) -> None:
    execute_values(
        cursor,
        f"INSERT INTO kafka_ingest_staging.{stem}_rows (stage_task, stage_attempt, payload, kafka_topic,"
        " kafka_generation, kafka_partition, kafka_offset, batch_id) VALUES %s",
        [
            (task, attempt, b"payload", r.topic, r.generation, r.partition, r.offset, r.batch_id)
            for task, attempt, r in staged
            if r.reason is None
        ],
    )
    execute_values(
        cursor,
        f"INSERT INTO kafka_ingest_staging.{stem}_dead_letters (stage_task, stage_attempt, topic, generation,"
        ' partition, "offset", value, record_time_ms, record_time_type, header_names, header_values, reason, detail)'
        " VALUES %s",
        [
            (
                task,
                attempt,
                r.topic,
                r.generation,
                r.partition,
                r.offset,
                b"\xff",
                1_700_000_000_123,
                "create",
                ["trace", "trace"],
                [b"1", None],
                r.reason,
                "byte 0",
            )
            for task, attempt, r in staged
            if r.reason is not None
        ],
        template="(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::bytea[], %s, %s)",
    )
