"""The ports of one database in two kinds: in memory, and a real PostgreSQL with the target shop.orders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any, Protocol

import psycopg2
from psycopg2 import errors, sql
from psycopg2.extras import execute_values

from kafka_ingest.errors import StagingLost
from kafka_ingest.postgres.changes import PostgresPositionLedger, PostgresRollBackLedger
from kafka_ingest.postgres.database import Connection, Row, TransactionLimits
from kafka_ingest.postgres.dead_letters import ATTEMPT, TASK, PostgresDeadLetterLedger
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.publisher import PostgresPublisher
from kafka_ingest.postgres.schema_changes import PostgresSchemaEvolution
from kafka_ingest.postgres.staging_tables import PostgresHousekeeper, PostgresStaging
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.dead_letters import DeadLetterLedger
from kafka_ingest.protocol.housekeeping import Housekeeper
from kafka_ingest.protocol.ports import Ledger, PositionLedger, Publisher, SchemaEvolution, Staging
from kafka_ingest.protocol.position import Position
from kafka_ingest.protocol.roll_back import RollBackLedger
from kafka_ingest.protocol.staging import staging_name
from kafka_ingest.protocol.target import written_columns
from tests.builders import batch_settings
from tests.fakes.database import FakeDatabase, Identity, StoredRecord
from tests.fakes.dead_letters import FakeDeadLetterLedger
from tests.fakes.housekeeper import FakeHousekeeper
from tests.fakes.ledger import FakeLedger, FakePositionLedger
from tests.fakes.loading import FakeStaging
from tests.fakes.publisher import FakePublisher
from tests.fakes.roll_back import FakeRollBackLedger
from tests.fakes.schema_evolution import FakeSchemaEvolution

#: Locks that a test holds on purpose are waited for only this long.
IMPATIENT = TransactionLimits(lock_timeout_seconds=0.2)

#: Task, attempt, and what it staged.
Staged = tuple[int, int, StoredRecord]
Counted = tuple[int, int, Identity]


class LedgerWorld(Protocol):
    """The ports of a database, and what else happens to it."""

    ledger: Ledger
    publisher: Publisher
    staging: Staging
    roll_backs: RollBackLedger
    changes: PositionLedger
    housekeeper: Housekeeper
    evolution: SchemaEvolution
    letters: DeadLetterLedger

    def decide(self, *, rows: Collection[int] = (), counted: Collection[int] = ()) -> None:
        """Say as what the bytes of dead letters are read from now on, by offset: the others still do not fit."""

    def fill(self, batch: Batch, staged: Sequence[Staged], counted: Sequence[Counted] = ()) -> None:
        """Put records, and identities that are only counted, into the staging of the batch's claim; all or none."""

    def stage(self, batch: Batch, staged: Sequence[Staged], counted: Sequence[Counted] = ()) -> None:
        """Create the staging of the batch's claim and fill it."""

    def resolve(self, *offsets: int) -> None:
        """Mark dead letters as resolved, and put the rows that they were turned into into the target."""

    def rows(self) -> list[StoredRecord]:
        """Read the target, by identity."""

    def dead_letters(self) -> list[StoredRecord]:
        """Read the dead letters, by identity."""

    def delete_row(self, offset: int) -> None:
        """Delete the row of an offset, as somebody else might."""

    def add_unique_offset(self, name: str) -> None:
        """Give the target a unique constraint on the offset alone, and a row with offset 0 of another topic."""

    def refuse(self, name: str, *offsets: int) -> None:
        """Give the target a CHECK that refuses rows of these offsets, which staging has not."""

    def swallow(self, name: str, *offsets: int) -> None:
        """Give the target a trigger that drops rows of these offsets without a word."""

    def reset(self, position: Position) -> None:
        """Put a position elsewhere, as a position change does."""

    def put(self, position: Position) -> None:
        """Let a position be of another log, as after an accepted re-creation."""

    def add_column(self, name: str, type_: str) -> None:
        """Give the target a column, as somebody else might."""

    def let_time_pass(self) -> None:
        """Let the ledger's clock go on; that of PostgreSQL does so by itself."""


class FakeWorld:
    """In memory."""

    def __init__(self) -> None:
        self.database = FakeDatabase()
        self.ledger: Ledger = FakeLedger(self.database)
        self._publisher = FakePublisher(self.database)
        self.publisher: Publisher = self._publisher
        self.staging: Staging = FakeStaging(self.database)
        self.roll_backs: RollBackLedger = FakeRollBackLedger(self.database)
        self.changes: PositionLedger = FakePositionLedger(self.database)
        self.housekeeper: Housekeeper = FakeHousekeeper(self.database)
        self.evolution: SchemaEvolution = FakeSchemaEvolution(self.database)
        self._letters = FakeDeadLetterLedger(self._publisher)
        self.letters: DeadLetterLedger = self._letters

    def decide(self, *, rows: Collection[int] = (), counted: Collection[int] = ()) -> None:
        self._letters.fitting, self._letters.counted = set(rows), set(counted)

    def fill(self, batch: Batch, staged: Sequence[Staged], counted: Sequence[Counted] = ()) -> None:
        attempt = (batch.batch_id, batch.claim)
        if attempt not in self.database.staged:
            raise StagingLost("the staging tables of this attempt are gone", batch_id=batch.batch_id)
        self.database.staged[attempt] += staged
        self.database.counted.setdefault(attempt, []).extend(counted)

    def stage(self, batch: Batch, staged: Sequence[Staged], counted: Sequence[Counted] = ()) -> None:
        self.staging.create(batch)
        self.fill(batch, staged, counted)

    def resolve(self, *offsets: int) -> None:
        for letter in (found for found in self.database.dead_letters if found.offset in offsets):
            self.database.resolved.add(letter.identity)
            self.database.rows.append(replace(letter, reason=None))

    def rows(self) -> list[StoredRecord]:
        return sorted(self.database.rows, key=lambda row: row.identity)

    def dead_letters(self) -> list[StoredRecord]:
        return sorted(self.database.dead_letters, key=lambda letter: letter.identity)

    def delete_row(self, offset: int) -> None:
        self.database.delete([row for row in self.database.rows if row.offset == offset])

    def add_unique_offset(self, name: str) -> None:
        self._publisher.refused_by = name

    def refuse(self, name: str, *offsets: int) -> None:
        self._publisher.refused_offsets = dict.fromkeys(offsets, name)

    def swallow(self, name: str, *offsets: int) -> None:
        self._publisher.swallowed_offsets = dict.fromkeys(offsets, name)

    def reset(self, position: Position) -> None:
        self.database.positions["orders", position.topic_partition] = position
        self.database.bound_timelines["orders", position.topic_partition] = position.timeline

    def put(self, position: Position) -> None:
        self.database.positions["orders", position.topic_partition] = position

    def add_column(self, name: str, type_: str) -> None:
        self.database.tables["shop", "orders"][name] = type_

    def let_time_pass(self) -> None:
        self.database.advance(1)


class PostgresWorld:
    """In PostgreSQL, with the target of ``tests.builders.batch_settings``: raw payload and metadata."""

    def __init__(self, params: Mapping[str, Any], limits: TransactionLimits = IMPATIENT) -> None:
        self.params = dict(params)
        self.ledger: Ledger = PostgresLedger(params, limits)
        self.publisher: Publisher = PostgresPublisher(params, limits)
        self.staging: Staging = PostgresStaging(params)
        self.roll_backs: RollBackLedger = PostgresRollBackLedger(params, limits)
        self.changes: PositionLedger = PostgresPositionLedger(params, limits)
        self.housekeeper: Housekeeper = PostgresHousekeeper(params, limits)
        self.evolution: SchemaEvolution = PostgresSchemaEvolution(params, limits)
        self.letters: DeadLetterLedger = PostgresDeadLetterLedger(params, batch_settings(), self._stager_of, limits)
        self._rows: set[int] = set()
        self._counted: set[int] = set()
        columns = ", ".join(f"{column.name} {column.type}" for column in written_columns(batch_settings()))
        self.run(f"CREATE SCHEMA shop CREATE TABLE orders ({columns})")

    def decide(self, *, rows: Collection[int] = (), counted: Collection[int] = ()) -> None:
        self._rows, self._counted = set(rows), set(counted)

    def _stager_of(self, connection: Connection, batch: Batch) -> Callable[[Sequence[Row]], None]:
        """Stage what :meth:`decide` says, in place of the decoder."""
        stem, cursor = f"kafka_ingest_staging.{staging_name(batch.batch_id, batch.claim)}", connection.cursor()
        cursor.execute(
            "SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid = %s::regclass", [f"{stem}_rows"]
        )
        for (name,) in cursor.fetchall():  # what the target refuses, staging has not
            cursor.execute(f"ALTER TABLE {stem}_rows DROP CONSTRAINT {name}")

        def stage(page: Sequence[Row]) -> None:
            reasons = {o: None if o in self._rows else "wrong_type" for o in (row["offset"] for row in page)}
            places = [(row["topic"], row["generation"], row["partition"], row["offset"]) for row in page]
            records = [StoredRecord(*p, batch.batch_id, reasons[p[-1]]) for p in places if p[-1] not in self._counted]
            _insert_staged(cursor, stem, [(TASK, ATTEMPT, record) for record in records])
            _insert_counted(cursor, stem, [(TASK, ATTEMPT, p) for p in places if p[-1] in self._counted])

        return stage

    def run(self, statement: str | sql.Composable, parameters: Any = ()) -> list[tuple[Any, ...]]:
        """Run statements in a transaction of their own; return the rows of the last one."""
        with closing(psycopg2.connect(**self.params)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def fill(self, batch: Batch, staged: Sequence[Staged], counted: Sequence[Counted] = ()) -> None:
        stem = f"kafka_ingest_staging.{staging_name(batch.batch_id, batch.claim)}"
        try:
            with closing(psycopg2.connect(**self.params)) as connection, connection, connection.cursor() as cursor:
                _insert_staged(cursor, stem, staged)
                _insert_counted(cursor, stem, counted)
        except errors.UndefinedTable as error:
            raise StagingLost("the staging tables of this attempt are gone", batch_id=batch.batch_id) from error

    def stage(self, batch: Batch, staged: Sequence[Staged], counted: Sequence[Counted] = ()) -> None:
        self.staging.create(batch)
        self.fill(batch, staged, counted)

    def resolve(self, *offsets: int) -> None:
        self.run(
            "UPDATE kafka_ingest.dead_letter SET resolved_at = now(), resolution = 'by hand'"
            ' WHERE "offset" = ANY (%(offsets)s);'
            " INSERT INTO shop.orders (kafka_topic, kafka_generation, kafka_partition, kafka_offset, batch_id)"
            ' SELECT topic, generation, partition, "offset", batch_id FROM kafka_ingest.dead_letter'
            ' WHERE "offset" = ANY (%(offsets)s)',
            {"offsets": list(offsets)},
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
        self.run(
            f"ALTER TABLE shop.orders ADD CONSTRAINT {name} UNIQUE (kafka_offset);"
            " INSERT INTO shop.orders (kafka_topic, kafka_generation, kafka_partition, kafka_offset, batch_id)"
            " VALUES ('another', 0, 0, 0, gen_random_uuid())"
        )

    def refuse(self, name: str, *offsets: int) -> None:
        listed = ", ".join(map(str, offsets))
        self.run(f"ALTER TABLE shop.orders ADD CONSTRAINT {name} CHECK (kafka_offset NOT IN ({listed}))")

    def swallow(self, name: str, *offsets: int) -> None:
        listed = ", ".join(map(str, offsets))
        self.run(
            "CREATE FUNCTION shop.swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF new.kafka_offset IN ({listed}) THEN RETURN NULL; END IF; RETURN new; END $$;"
            f" CREATE TRIGGER {name} BEFORE INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.swallow()"
        )

    def reset(self, position: Position) -> None:
        self.run(
            "UPDATE kafka_ingest.committed_offset SET committed_offset = %(committed_offset)s, line = %(line)s,"
            " loaded_to = %(loaded_to)s WHERE topic = %(topic)s AND partition = %(partition)s;"
            " INSERT INTO kafka_ingest.position_change (request_id, kind, pipeline, topic, partition, who, why,"
            " to_offset, to_generation, to_line) VALUES (gen_random_uuid(), 'reset', 'orders', %(topic)s,"
            " %(partition)s, 'operator', 'test', %(committed_offset)s, 0, %(line)s)",
            {**asdict(position), "line": position.timeline},
        )

    def put(self, position: Position) -> None:
        self.run(
            "UPDATE kafka_ingest.committed_offset SET generation = %(generation)s, topic_id = %(topic_id)s"
            " WHERE topic = %(topic)s AND partition = %(partition)s",
            asdict(position),
        )

    def add_column(self, name: str, type_: str) -> None:
        self.run(sql.SQL("ALTER TABLE shop.orders ADD COLUMN {} {}").format(sql.Identifier(name), sql.SQL(type_)))

    def let_time_pass(self) -> None: ...


def _insert_counted(cursor: Any, stem: str, counted: Sequence[Counted]) -> None:
    """Insert identities into the table that is there only where something may be replaced."""
    columns = '(stage_task, stage_attempt, topic, generation, partition, "offset")'
    values = [(task, attempt, *identity) for task, attempt, identity in counted]
    execute_values(cursor, f"INSERT INTO {stem}_counted {columns} VALUES %s", values)


def _insert_staged(cursor: Any, stem: str, staged: Sequence[Staged]) -> None:
    execute_values(
        cursor,
        f"INSERT INTO {stem}_rows (stage_task, stage_attempt, payload, kafka_topic, kafka_generation, kafka_partition,"
        " kafka_offset, batch_id) VALUES %s",
        [(task, number, b"payload", *r.identity, r.batch_id) for task, number, r in staged if r.reason is None],
    )
    fixed = (b"\xff", 1_700_000_000_123, "create", ["trace", "trace"], [b"1", None], "byte 0")
    execute_values(
        cursor,
        f'INSERT INTO {stem}_dead_letters (stage_task, stage_attempt, topic, generation, partition, "offset", reason,'
        " value, record_time_ms, record_time_type, header_names, header_values, detail) VALUES %s",
        [(task, number, *r.identity, r.reason, *fixed) for task, number, r in staged if r.reason is not None],
        template=f"({', '.join(['%s'] * 11)}, %s::bytea[], %s)",
    )
