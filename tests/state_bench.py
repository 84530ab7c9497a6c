"""An upsert pipeline over a log in memory, ledger and table in PostgreSQL, and the fold that a reader would make."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg2

from kafka_ingest.postgres.changes import PostgresPositionLedger
from kafka_ingest.postgres.database import TransactionLimits
from kafka_ingest.postgres.dead_letters import PostgresDeadLetterLedger
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.publisher import PostgresPublisher
from kafka_ingest.postgres.rows import settings_hash
from kafka_ingest.postgres.schema_changes import PostgresSchemaEvolution
from kafka_ingest.postgres.staging_tables import PostgresStaging
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.protocol.batch import Batch, BatchState, OffsetSpan, Request, RunMode, RunOptions
from kafka_ingest.protocol.changes import ChangePorts, apply_change
from kafka_ingest.protocol.dead_letters import (
    DeadLetterAction,
    DeadLetterChoice,
    DeadLetterOutcome,
    DeadLetterRequest,
    resolve_dead_letters,
)
from kafka_ingest.protocol.decisions import Change as PositionRequest
from kafka_ingest.protocol.decisions import ChangeRequest, ResetToOffsets
from kafka_ingest.protocol.load import LoadPorts, load_batch
from kafka_ingest.protocol.plan import PlanPorts, plan_batch
from kafka_ingest.protocol.staging import StageContext, StageResult, StageTask
from kafka_ingest.settings import (
    BatchSettings,
    ColumnSettings,
    Deletes,
    DeleteWhen,
    HoldSettings,
    OrderBy,
    PartitionOffset,
    PipelineSettings,
    UpsertSettings,
    ValueFormat,
    ValueSettings,
)
from spark_jobs.replay_job import StoredRecordStager
from spark_jobs.stage import stage_task
from tests.builders import batch_settings, pipeline_settings
from tests.fakes.log import FakeLog
from tests.fakes.range_reader import FakeRangeReader

TOPIC = "orders"
PIPELINE = "orders"


@dataclass(frozen=True)
class Change:
    """One record: a key, and what each version of the settings reads in it; ``None`` is a tombstone.

    Under version N the note is ``notes[N]``; a note of ``BAD`` does not fit, so the record is a dead letter then.
    """

    key: str
    notes: tuple[int | str, ...] | None = (0, 0)
    at: int = 0
    is_delete: bool = False


BAD = "bad"


def state_settings(
    version: int = 0, *, order: OrderBy = OrderBy.OFFSET, deletes: Deletes = Deletes.REMOVE
) -> BatchSettings:
    """Return settings of a table of keys and notes; the version chooses the member that notes come from."""
    columns = (
        ColumnSettings("id", "text", ("id",), required=True, from_key=True),
        ColumnSettings("note", "bigint", (f"note{version}",)),
        ColumnSettings("at", "integer", ("at",), required=order is OrderBy.COLUMN),
    )
    upsert = UpsertSettings(
        ("id",),
        order,
        deletes,
        order_column="at" if order is OrderBy.COLUMN else None,
        delete_when=DeleteWhen(("gone",), "true"),
        deleted_at="deleted_at" if deletes is Deletes.MARK else None,
    )
    return replace(batch_settings(), value=ValueSettings(ValueFormat.JSON_COLUMNS, columns), upsert=upsert)


class _Runner:
    """Port ``TaskRunner`` in this process, over the log in memory; a task for each split, attempts numbered anew."""

    def __init__(self, params: Mapping[str, Any], log: FakeLog, tasks: int) -> None:
        self._params, self._log, self._tasks = params, log, tasks
        self._attempt = 0

    def parallelism(self) -> int:
        return self._tasks

    def run(self, batch: Batch, tasks: Sequence[StageTask]) -> Sequence[StageResult]:
        shape = PostgresTarget(self._params).shape(batch.settings)
        context = StageContext(
            batch.batch_id, batch.claim, batch.settings, shape, kafka={}, postgres=dict(self._params)
        )
        results = []
        for task in tasks:
            self._attempt += 1
            results.append(stage_task(task, context, self._attempt, reader=FakeRangeReader(self._log)))
        return results

    def cancel(self) -> None:
        """Nothing runs beside the test."""

    def release(self) -> None:
        """Nothing is held."""


class BenchClock:
    """Port ``Clock``; a test sets it forward, as if so much time had passed since the plan."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


class _EndedRuns:
    def is_finished(self, request: Request) -> bool:
        return True


class StateBench:
    """The pipeline ``orders``: its log, its ledger, its table, and what was read of each record last.

    Attributes:
        clock: What a load asks for the time.
        publish_limits: Time-outs of the publish.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        settings: Callable[[int], BatchSettings],
        partitions: int = 1,
        *,
        topics: Sequence[str] = (TOPIC,),
    ) -> None:
        self.params = params
        self.clock = BenchClock()
        self.publish_limits = TransactionLimits()
        self.log = FakeLog()
        for topic in topics:
            self.log.create_topic(topic, partitions)
        self._topics = topics
        self.changes: dict[tuple[int, int], Change] = {}
        self.seen: dict[tuple[int, int], int] = {}
        self.version = 0
        self._settings = settings
        self.runner = _Runner(params, self.log, tasks=2)

    @property
    def settings(self) -> PipelineSettings:
        """The pipeline as its file says now."""
        batch = self._settings(self.version)
        return pipeline_settings(*self._topics, batch=batch)

    def send(self, key: object, value: object, partition: int = 0, *, at: int = 0, topic: str = TOPIC) -> None:
        """Add a record with a JSON key and a JSON value, ``None`` for none, that no fold of the bench knows."""
        encoded = (None if part is None else json.dumps(part).encode() for part in (value, key))
        value_bytes, key_bytes = encoded
        time_ms = 1_767_355_200_000 + at
        self.log.append(topic, value_bytes, partition=partition, key=key_bytes, timestamp_ms=time_ms)

    def append(self, change: Change, partition: int = 0) -> None:
        """Add a record to the log."""
        value = None
        if change.notes is not None:
            members: dict[str, object] = {f"note{n}": note for n, note in enumerate(change.notes)}
            value = json.dumps({**members, "at": change.at, "gone": change.is_delete}).encode()
        where = self.log.topics[TOPIC].partitions[partition]
        self.changes[partition, where.high_watermark] = change
        key = json.dumps({"id": change.key}).encode()
        self.log.append(TOPIC, value, partition=partition, key=key, timestamp_ms=1_767_355_200_000 + change.at)

    # What operators and schedules do.

    def live(self, limit: int = 1_000) -> Batch:
        """Load what is new, at most so many offsets."""
        return self.run(RunOptions(limit_offsets=limit))

    def reload(self, partition: int, start: int, end: int, *, what_is_left: bool = False) -> Batch:
        """Load a span again."""
        spans = (OffsetSpan(TOPIC, partition, start, end),)
        return self.run(RunOptions(RunMode.RELOAD, offsets=spans, reload_what_is_left=what_is_left))

    def rebuild(self, *, what_is_left: bool = True, into_new_table: bool = False) -> Batch:
        """Load the whole log again, and give up what it does not hold."""
        before, self.seen = self.seen, {}
        try:
            options = RunOptions(
                RunMode.REBUILD, reload_what_is_left=what_is_left, into_new_table=into_new_table, reason="a test"
            )
            return self.run(options)
        except BaseException:
            self.seen = before
            raise

    def compact(self, partition: int, below: int) -> None:
        """Keep of each key the newest record below an offset; tombstones stay."""
        newest: dict[str, int] = {}
        entries = self.log.topics[TOPIC].partitions[partition].entries
        for offset in sorted(offset for offset in entries if offset < below):
            newest[self.key_of((partition, offset))] = offset
        gone = [offset for offset in entries if offset < below and offset not in newest.values()]
        self.log.compact(TOPIC, partition, *gone)

    def key_of(self, identity: tuple[int, int]) -> str:
        """Return the key of a record."""
        return self.changes[identity].key

    def reset(self, partition: int, to: int) -> None:
        """Set the position back."""
        self.change(ResetToOffsets((PartitionOffset(TOPIC, partition, to),)))

    def change(self, change: PositionRequest) -> None:
        """Change positions, or what binds the pipeline."""
        request = ChangeRequest(PIPELINE, uuid.uuid4().hex, change, who="somebody", why="a test")
        apply_change(self.settings, request, ChangePorts(PostgresPositionLedger(self.params), self.log))

    def resolve(self, action: DeadLetterAction) -> DeadLetterOutcome:
        """Replay or discard all open dead letters."""
        request = DeadLetterRequest(uuid.uuid4().hex, PIPELINE, action, DeadLetterChoice(), "somebody", "a test")
        stager = partial(StoredRecordStager, dict(self.params), registry={})
        settings = self.settings
        ledger = PostgresDeadLetterLedger(self.params, settings.batch, stager)
        before = self.open_dead_letters()
        outcome = resolve_dead_letters(settings, request, ledger, apply=True).outcome
        for identity in before if action is DeadLetterAction.REPLAY else ():
            self.seen[identity] = self.version
        return outcome

    def plan(self, options: RunOptions) -> Batch:
        """Plan a batch."""
        settings = self.settings
        ports = PlanPorts(PostgresLedger(self.params), self.log, PostgresTarget(self.params), _EndedRuns())
        request = Request("test", uuid.uuid4().hex, parameters=options.to_parameters())
        return plan_batch(settings, request, ports, settings_hash=settings_hash(settings.batch))

    def load(self, batch: Batch) -> Batch:
        """Load a planned batch."""
        ports = LoadPorts(
            PostgresLedger(self.params),
            self.log,
            PostgresStaging(self.params),
            self.runner,
            PostgresPublisher(self.params, self.publish_limits),
            self.clock,
            PostgresSchemaEvolution(self.params),
        )
        return load_batch(batch.batch_id, ports, hold=HoldSettings(), report=lambda _: None)

    def run(self, options: RunOptions) -> Batch:
        """Plan and load a batch."""
        batch = self.plan(options)
        if batch.state is not BatchState.COMMITTED:
            batch = self.load(batch)
        for r in (r for r in batch.ranges if r.topic == TOPIC):
            entries = self.log.topics[TOPIC].partitions[r.partition].entries
            self.seen |= {(r.partition, offset): self.version for offset in range(r.start, r.end) if offset in entries}
        return batch

    # What is there, and what should be.

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Ask the database."""
        with closing(psycopg2.connect(**self.params)) as connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            found = cursor.fetchall() if cursor.description else []
            connection.commit()
            return found

    def table(self) -> dict[str, tuple[Any, ...]]:
        """Return note, record time, offset, and whether it is marked, of each row by key."""
        marked = "deleted_at IS NOT NULL" if self.settings.batch.upsert.deleted_at else "false"  # type: ignore[union-attr]
        rows = self.query(f"SELECT id, note, kafka_partition, kafka_offset, {marked} FROM shop.orders")
        return {key: tuple(rest) for key, *rest in rows}

    def open_dead_letters(self) -> list[tuple[int, int]]:
        """Return partition and offset of the dead letters that nobody has resolved."""
        return self.query('SELECT partition, "offset" FROM kafka_ingest.dead_letter WHERE resolved_at IS NULL')

    def discarded(self) -> set[tuple[int, int]]:
        """Return partition and offset of the discarded dead letters."""
        found = self.query(
            """SELECT partition, "offset" FROM kafka_ingest.dead_letter WHERE resolution = 'discarded'"""
        )
        return set(found)

    def violations(self) -> list[str]:
        """Run all invariants."""
        return [f"{v.invariant}: {v.row}" for v in PostgresLedger(self.params).violations(PIPELINE)]

    def state_violations(self) -> list[str]:
        """Look at every row."""
        return [f"{v.invariant}: {v.row}" for v in PostgresLedger(self.params).state_violations(PIPELINE)]

    def folded(self) -> dict[str, tuple[Any, ...]]:
        """Fold every record that was read, as it was read last, in the order of versions: what the table must be."""
        upsert = self.settings.batch.upsert
        assert upsert is not None
        out = self.discarded()
        found: dict[str, tuple[Any, ...]] = {}
        for identity in sorted(
            self.seen.keys() - out, key=partial(self._version, by_offset=upsert.order is OrderBy.OFFSET)
        ):
            change = self.changes[identity]
            note = change.notes[self.seen[identity]] if change.notes else None
            if change.notes is None or change.is_delete:
                if change.notes is None and upsert.order is OrderBy.COLUMN:
                    continue
                last = found.get(change.key)
                kept = last[0] if last and upsert.order is OrderBy.OFFSET else None
                if upsert.deletes is Deletes.REMOVE:
                    found.pop(change.key, None)
                elif upsert.deletes is Deletes.MARK:
                    found[change.key] = (kept, *identity, True)
            elif note != BAD:
                found[change.key] = (note, *identity, False)
        return found

    def _version(self, identity: tuple[int, int], *, by_offset: bool) -> tuple[int, ...]:
        return identity if by_offset else (self.changes[identity].at, *identity)
