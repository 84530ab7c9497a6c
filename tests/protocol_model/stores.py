"""The database of the model: in memory here, a real PostgreSQL in ``postgres_store``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from kafka_ingest.errors import StagingLost
from kafka_ingest.protocol.batch import Batch, BatchState
from kafka_ingest.protocol.ports import Ledger, PositionLedger, Publisher, Staging
from kafka_ingest.protocol.position import Position
from kafka_ingest.protocol.roll_back import RollBackLedger
from kafka_ingest.settings import PROTOCOL_VERSION
from tests.fakes.database import FakeDatabase, Identity, StoredRecord
from tests.fakes.ledger import FakeLedger, FakePositionLedger
from tests.fakes.loading import FakeStaging
from tests.fakes.publisher import FakePublisher
from tests.fakes.roll_back import FakeRollBackLedger

#: Task, attempt, and what it staged.
Staged = tuple[int, int, StoredRecord]
Counted = tuple[int, int, Identity]


@dataclass(frozen=True)
class BatchLine:
    """What the checks need of a batch row."""

    batch_id: str
    request: tuple[str, str, str, int, int]
    state: BatchState
    claim: int
    is_announced: bool


class Store(Protocol):
    """A database with its ports, and what can happen to it.

    Attributes:
        incarnation: Grows whenever all connections were ended.
    """

    ledger: Ledger
    publisher: Publisher
    staging: Staging
    changes: PositionLedger
    roll_backs: RollBackLedger
    incarnation: int

    def stage(self, batch: Batch, staged: Sequence[Staged], counted: Sequence[Counted]) -> None:
        """Puts records, and identities that are only counted, into the staging of the batch's claim; all or none."""

    def rows(self) -> list[StoredRecord]:
        """Reads the target."""

    def dead_letters(self) -> list[StoredRecord]:
        """Reads the dead letters."""

    def positions(self) -> Sequence[Position]:
        """Reads the positions, by (topic, partition)."""

    def batches(self) -> list[BatchLine]:
        """Reads the batches, in the order in which they were recorded."""

    def fingerprint(self) -> object:
        """Gives a value that changes with every durable change; ``None`` where that would cost too much."""

    def advance(self, seconds: float) -> None:
        """Lets time pass on the database's clock."""

    def plan_was_of_another_version(self, batch_id: str) -> None:
        """Makes a batch look as if another version of the package had planned it."""

    def recover(self) -> None:
        """Crash recovery, all connections being gone: unlogged tables are empty."""

    def save(self) -> object:
        """Takes a copy."""

    def restore(self, saved: Any) -> None:
        """Goes back to a copy, all connections being gone."""


class FakeStore:
    """A :class:`FakeDatabase` with its ports."""

    def __init__(self) -> None:
        self.database = FakeDatabase()
        self.ledger: Ledger = FakeLedger(self.database)
        self.publisher: Publisher = FakePublisher(self.database)
        self.staging: Staging = FakeStaging(self.database)
        self.changes: PositionLedger = FakePositionLedger(self.database)
        self.roll_backs: RollBackLedger = FakeRollBackLedger(self.database)
        self.incarnation = 0

    def stage(self, batch: Batch, staged: Sequence[Staged], counted: Sequence[Counted]) -> None:
        if (batch.batch_id, batch.claim) not in self.database.staged:
            raise StagingLost("the staging tables of this attempt are gone", batch_id=batch.batch_id)
        self.database.staged[batch.batch_id, batch.claim] += staged
        self.database.counted.setdefault((batch.batch_id, batch.claim), []).extend(counted)

    def rows(self) -> list[StoredRecord]:
        return self.database.rows

    def dead_letters(self) -> list[StoredRecord]:
        return self.database.dead_letters

    def positions(self) -> Sequence[Position]:
        return list(self.database.positions.values())

    def batches(self) -> list[BatchLine]:
        return [
            BatchLine(b.batch_id, b.request.identity, b.state, b.claim, b.announced_at is not None)
            for b in self.database.batches.values()
        ]

    def fingerprint(self) -> object:
        db = self.database
        return (
            tuple(db.rows),
            tuple(db.dead_letters),
            tuple(db.positions.values()),
            tuple((b.state, b.claim, b.announced_at) for b in db.batches.values()),
        )

    def advance(self, seconds: float) -> None:
        self.database.advance(seconds)

    def plan_was_of_another_version(self, batch_id: str) -> None:
        if batch_id not in self.database.locked:
            batch = self.database.batches[batch_id]
            self.database.batches[batch_id] = replace(batch, protocol_version=PROTOCOL_VERSION + 1)

    def recover(self) -> None:
        self.incarnation += 1
        self.database.staged = {key: [] for key in self.database.staged}
        self.database.counted.clear()

    def save(self) -> object:
        return self.database.save()

    def restore(self, saved: Any) -> None:
        self.database.restore(saved)
        self.recover()
