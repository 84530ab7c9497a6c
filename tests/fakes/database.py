"""One database in memory: what it holds, and the one write of the ledger. The ports are in the modules beside it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from kafka_ingest.errors import IngestError, LockTimeout
from kafka_ingest.protocol.batch import Batch, BatchState, Hold, PartitionOutcome, Request
from kafka_ingest.protocol.dead_letters import RecordedDeadLetters
from kafka_ingest.protocol.ledger_view import (
    LedgerWrite,
    PipelineRecord,
    PlanView,
    PositionMove,
    RecordedChange,
    ServedTopic,
    View,
)
from kafka_ingest.protocol.log import LogObservation
from kafka_ingest.protocol.position import OffsetRange, Position, TopicPartition
from kafka_ingest.protocol.roll_back import RollBackRecord, UndoneSpan
from kafka_ingest.protocol.target import AddedColumn, written_columns
from kafka_ingest.settings import TargetSettings
from tests.builders import NOON, batch_settings

#: Topic, generation, partition and offset of a record.
Identity: TypeAlias = tuple[str, int, int, int]


@dataclass(frozen=True)
class StoredRecord:
    """A row, or with a ``reason`` a dead letter: the identity of its record, and the batch that wrote it."""

    topic: str
    generation: int
    partition: int
    offset: int
    batch_id: str
    reason: str | None = None

    @property
    def identity(self) -> Identity:
        """What it is found by."""
        return (self.topic, self.generation, self.partition, self.offset)


def lies_in(identity: Identity, place: OffsetRange | Position | UndoneSpan, start: int, end: int) -> bool:
    """Whether an identity is one of the offsets ``[start, end)`` of a partition in its generation."""
    *where, offset = identity
    return where == [place.topic, place.generation, place.partition] and start <= offset < end


def _columns() -> dict[str, str]:
    return {column.name: column.type for column in written_columns(batch_settings())}


@dataclass
class FakeDatabase:
    """Everything that is committed. ``now`` is the database's clock; a test moves it.

    Attributes:
        locked: Pipelines, by name, and batches whose row a transaction has locked.
        bound_timelines: The newest timeline of a position change other than a roll-back; 0 where it is missing.
        changes: Position changes, by pipeline and request id.
        roll_backs: What more is known of those that are roll-backs.
        resolved: Identities of dead letters that are marked as resolved.
        replayed: Those of them that a replay resolved: for a reload they are records like any other.
        dead_letter_requests: What was recorded for requests about dead letters, by pipeline and request id.
        staged: Staged records by (batch, claim): task, attempt and record. Not committed with anything: staging is
            outside the ledger.
        counted: Identities of records that are only counted, by (batch, claim), with task and attempt; staged, too.
        tables: Columns of each table, name to type, by schema and name.
        added: Columns that loads have added, with the batch that did it, by pipeline, schema and table.
    """

    now: datetime = NOON
    mutex: threading.RLock = field(default_factory=threading.RLock)
    locked: set[str] = field(default_factory=set)
    pipelines: dict[str, PipelineRecord] = field(default_factory=dict)
    served: dict[tuple[str, str, str, str], ServedTopic] = field(default_factory=dict)
    positions: dict[tuple[str, TopicPartition], Position] = field(default_factory=dict)
    observations: dict[tuple[str, TopicPartition], LogObservation] = field(default_factory=dict)
    bound_timelines: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    changes: dict[tuple[str, str], RecordedChange] = field(default_factory=dict)
    roll_backs: dict[tuple[str, str], RollBackRecord] = field(default_factory=dict)
    batches: dict[str, Batch] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    announced_by: dict[str, Request] = field(default_factory=dict)
    published: dict[str, tuple[PartitionOutcome, ...]] = field(default_factory=dict)
    rows: list[StoredRecord] = field(default_factory=list)
    dead_letters: list[StoredRecord] = field(default_factory=list)
    resolved: set[Identity] = field(default_factory=set)
    replayed: set[Identity] = field(default_factory=set)
    dead_letter_requests: dict[tuple[str, str], RecordedDeadLetters] = field(default_factory=dict)
    staged: dict[tuple[str, int], list[tuple[int, int, StoredRecord]]] = field(default_factory=dict)
    counted: dict[tuple[str, int], list[tuple[int, int, Identity]]] = field(default_factory=dict)
    tables: dict[tuple[str, str], dict[str, str]] = field(default_factory=lambda: {("shop", "orders"): _columns()})
    added: dict[tuple[str, str, str], tuple[tuple[AddedColumn, str], ...]] = field(default_factory=dict)

    def advance(self, seconds: float) -> None:
        """Let time pass on the database's clock."""
        self.now += timedelta(seconds=seconds)

    def save(self) -> dict[str, Any]:
        """Return a copy of everything that is committed."""
        return {name: copy.copy(getattr(self, name)) for name in _TABLES}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go back to a copy."""
        for name, table in saved.items():
            setattr(self, name, copy.copy(table))

    # What is read.

    def positions_of(self, pipeline: str) -> tuple[Position, ...]:
        """Return a pipeline's positions by (topic, partition)."""
        return tuple(self.positions[key] for key in sorted(self.positions) if key[0] == pipeline)

    def batches_of(self, pipeline: str) -> list[Batch]:
        """Return a pipeline's batches in the order in which they were recorded."""
        return [batch for batch in self.batches.values() if batch.pipeline == pipeline]

    def batch_of(self, pipeline: str, request: Request) -> Batch | None:
        """Return the newest batch of a run."""
        own = [b for b in self.batches_of(pipeline) if b.request.identity[:-1] == request.identity[:-1]]
        return own[-1] if own else None

    def added_columns(self, pipeline: str, target: TargetSettings) -> tuple[AddedColumn, ...]:
        """Return the columns that were added to a table for a pipeline."""
        return tuple(column for column, _ in self.added.get((pipeline, target.schema, target.table), ()))

    def plan_view(self, pipeline: str, request: Request, target: TargetSettings) -> PlanView:
        """Return what a plan sees."""
        planned = [batch for batch in self.batches_of(pipeline) if batch.state is BatchState.PLANNED]
        return PlanView(
            now=self.now,
            pipeline=self.pipelines.get(pipeline),
            positions=self.positions_of(pipeline),
            served=tuple(s for key, s in sorted(self.served.items()) if key[:2] == (target.schema, target.table)),
            outstanding=planned[0] if planned else None,
            hold=self.holds.get(planned[0].batch_id) if planned else None,
            own=self.batch_of(pipeline, request),
            observations=tuple(self.observations[key] for key in sorted(self.observations) if key[0] == pipeline),
            added_columns=self.added_columns(pipeline, target),
        )

    def valid_through(self, pipeline: str) -> datetime | None:
        """Return the minimum over the partitions that are not retired; ``None`` when one is unknown."""
        record = self.pipelines.get(pipeline)
        place = (record.target_schema, record.target_table, record.cluster_id) if record else None
        retired = {key[3] for key, s in self.served.items() if key[:3] == place and s.is_retired}
        times = [p.valid_through for p in self.positions_of(pipeline) if p.topic not in retired]
        known = [time for time in times if time is not None]
        return min(known) if known and len(known) == len(times) else None

    # The one write, which plan, change and roll-back share.

    def require(self, write: LedgerWrite, later: View, *, busy: type[IngestError] = LockTimeout) -> None:
        """Let a write begin: nobody has locked the pipeline, which stands as it was seen, or its outstanding batch."""
        if write.pipeline in self.locked:
            raise busy("the pipeline is locked", pipeline=write.pipeline)
        write.require(later)
        if write.supersedes in self.locked:
            raise busy("the batch row is locked", pipeline=write.pipeline)

    @contextmanager
    def write(self, write: LedgerWrite, later: View, *, busy: type[IngestError] = LockTimeout) -> Iterator[None]:
        """Begin a write, superseding the outstanding batch; where it fails, nothing of it stays."""
        self.require(write, later, busy=busy)
        saved = self.save()
        try:
            self.change_state(write.supersedes, BatchState.SUPERSEDED)
            yield
        except IngestError:
            self.restore(saved)
            raise

    def change_state(self, batch_id: str | None, state: BatchState) -> None:
        """Put a batch, if there is one, into a state in which nobody holds it."""
        if batch_id is not None:
            self.batches[batch_id] = replace(self.batches[batch_id], state=state)
            self.holds.pop(batch_id, None)

    def move(self, write: LedgerWrite, moves: Iterable[PositionMove], *, binds: bool = True) -> None:
        """Move positions one after another, each from where it was seen; a roll-back binds no later one."""
        for move in moves:
            key = (write.pipeline, move.place)
            if self.positions.get(key) != move.before:
                raise write.moved(f"{move.place} does not stand as it was seen")
            self.positions.pop(key, None)
            if move.after is not None:
                self.positions[key] = replace(move.after, updated_at=self.now)
            if move.after is not None and binds:
                self.bound_timelines[key] = move.after.timeline

    def record(self, change: RecordedChange) -> RecordedChange:
        """Record who changed what, and why."""
        self.changes[change.pipeline, change.request_id] = change
        return change

    def delete(self, records: Iterable[StoredRecord]) -> None:
        """Delete rows and dead letters."""
        gone = set(records)
        self.rows = [row for row in self.rows if row not in gone]
        self.dead_letters = [letter for letter in self.dead_letters if letter not in gone]
        still = {letter.identity for letter in self.dead_letters}
        self.resolved, self.replayed = self.resolved & still, self.replayed & still


_TABLES = [f.name for f in fields(FakeDatabase) if f.name not in ("now", "mutex", "locked")]


class FakePort:
    """A port of a database, which a test can look at."""

    def __init__(self, database: FakeDatabase | None = None) -> None:
        self.database = database or FakeDatabase()


P = ParamSpec("P")
T = TypeVar("T")
Port = TypeVar("Port", bound=FakePort)


def at_once(method: Callable[Concatenate[Port, P], T]) -> Callable[Concatenate[Port, P], T]:
    """Make a transaction of a port's method: nobody else acts meanwhile."""

    @wraps(method)
    def run(port: Port, /, *args: P.args, **named: P.kwargs) -> T:
        with port.database.mutex:
            return method(port, *args, **named)

    return run


class FakeSession(FakePort):
    """A transaction of several statements: its changes wait for COMMIT, and nobody else gets what it has locked."""

    def __init__(self, database: FakeDatabase) -> None:
        super().__init__(database)
        self._locks: set[str] = set()
        self._changes: list[Callable[[], object]] = []

    def _lock(self, names: Iterable[str], busy: IngestError) -> None:
        wanted = set(names)
        if wanted & self.database.locked:
            raise busy
        self._locks |= wanted
        self.database.locked |= wanted

    @at_once
    def _apply(self) -> None:
        for change in self._changes:
            change()

    @at_once
    def close(self) -> None:
        """End it; what was not committed is rolled back."""
        self.database.locked -= self._locks
        self._locks = set()
