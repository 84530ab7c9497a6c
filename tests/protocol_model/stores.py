"""The database of the model: in memory here, a real PostgreSQL in ``postgres_store``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from kafka_ingest.protocol.batch import BatchState
from kafka_ingest.protocol.position import Position
from kafka_ingest.settings import PROTOCOL_VERSION
from tests.contracts.ledger_worlds import FakeWorld, LedgerWorld
from tests.fakes.database import StoredRecord


@dataclass(frozen=True)
class BatchLine:
    """What the checks need of a batch row."""

    batch_id: str
    request: tuple[str, str, str, int, int]
    state: BatchState
    claim: int
    is_announced: bool


class Store(LedgerWorld, Protocol):
    """A database with its ports, and what can happen to it in a schedule.

    Attributes:
        incarnation: Grows whenever all connections were ended.
    """

    incarnation: int

    def positions(self) -> Sequence[Position]:
        """Read the positions, by (topic, partition)."""

    def standing_dead_letters(self) -> list[StoredRecord]:
        """Read the dead letters that are not rows by now."""

    def batches(self) -> list[BatchLine]:
        """Read the batches, in the order in which they were recorded."""

    def fingerprint(self) -> object:
        """Return a value that changes with every durable change; ``None`` where that would cost too much."""

    def advance(self, seconds: float) -> None:
        """Let time pass on the database's clock."""

    def plan_was_of_another_version(self, batch_id: str) -> None:
        """Make a batch look as if another version of the package had planned it."""

    def recover(self) -> None:
        """Recover from a crash, all connections being gone: unlogged tables are empty."""

    def save(self) -> object:
        """Take a copy."""

    def restore(self, saved: Any) -> None:
        """Go back to a copy, all connections being gone."""


class FakeStore(FakeWorld):
    """In memory."""

    incarnation = 0

    def positions(self) -> Sequence[Position]:
        return list(self.database.positions.values())

    def standing_dead_letters(self) -> list[StoredRecord]:
        return [letter for letter in self.database.dead_letters if letter.identity not in self.database.replayed]

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
            frozenset(db.resolved),
            tuple(db.dead_letter_requests),
            tuple(db.positions.values()),
            tuple((b.state, b.claim, b.announced_at) for b in db.batches.values()),
            tuple(db.added.items()),
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
