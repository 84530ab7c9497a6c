"""What the fakes of ledger, staging and publisher share in place of a database."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from kafka_ingest.errors import IngestError, LockTimeout
from kafka_ingest.protocol.batch import Batch, BatchState, Hold, PartitionOutcome, Request
from kafka_ingest.protocol.ledger_view import (
    LedgerWrite,
    PipelineRecord,
    PositionMove,
    RecordedChange,
    ServedTopic,
    View,
)
from kafka_ingest.protocol.log import LogObservation
from kafka_ingest.protocol.position import OffsetRange, Position, TopicPartition
from kafka_ingest.protocol.roll_back import RollBackRecord
from kafka_ingest.protocol.target import written_columns
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


def _columns() -> dict[str, str]:
    return {column.name: column.type for column in written_columns(batch_settings())}


@dataclass
class FakeDatabase:
    """Everything that is committed. ``now`` is the database's clock; a test moves it.

    Attributes:
        locked: Batches whose row a transaction has locked.
        staged: Staged records by (batch, claim): task, attempt and record. Not committed with anything: staging is
            outside the ledger.
        resolved: Identities of dead letters that are marked as resolved.
        counted: Identities of records that are only counted, by (batch, claim), with task and attempt; staged, too.
        bound_timelines: The newest timeline of a position change other than a roll-back; 0 where it is missing.
        roll_backs: What was rolled back, by pipeline and request id.
        changes: The other position changes, by pipeline and request id.
        tables: Columns of each table, name to type, by schema and name.
    """

    now: datetime = NOON
    mutex: threading.RLock = field(default_factory=threading.RLock)
    pipelines: dict[str, PipelineRecord] = field(default_factory=dict)
    served: dict[tuple[str, str, str, str], ServedTopic] = field(default_factory=dict)
    positions: dict[tuple[str, TopicPartition], Position] = field(default_factory=dict)
    observations: dict[tuple[str, TopicPartition], LogObservation] = field(default_factory=dict)
    batches: dict[str, Batch] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    announced_by: dict[str, Request] = field(default_factory=dict)
    published: dict[str, tuple[PartitionOutcome, ...]] = field(default_factory=dict)
    rows: list[StoredRecord] = field(default_factory=list)
    dead_letters: list[StoredRecord] = field(default_factory=list)
    locked: set[str] = field(default_factory=set)
    resolved: set[Identity] = field(default_factory=set)
    counted: dict[tuple[str, int], list[tuple[int, int, Identity]]] = field(default_factory=dict)
    staged: dict[tuple[str, int], list[tuple[int, int, StoredRecord]]] = field(default_factory=dict)
    bound_timelines: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    roll_backs: dict[tuple[str, str], RollBackRecord] = field(default_factory=dict)
    changes: dict[tuple[str, str], RecordedChange] = field(default_factory=dict)
    tables: dict[tuple[str, str], dict[str, str]] = field(default_factory=lambda: {("shop", "orders"): _columns()})

    def advance(self, seconds: float) -> None:
        """Lets time pass on the database's clock."""
        self.now += timedelta(seconds=seconds)

    def positions_of(self, pipeline: str) -> tuple[Position, ...]:
        """Gives a pipeline's positions by (topic, partition)."""
        return tuple(self.positions[key] for key in sorted(self.positions) if key[0] == pipeline)

    def observations_of(self, pipeline: str) -> tuple[LogObservation, ...]:
        """Gives what plans saw of a pipeline's log by (topic, partition)."""
        return tuple(self.observations[key] for key in sorted(self.observations) if key[0] == pipeline)

    def batches_of(self, pipeline: str) -> list[Batch]:
        """Gives a pipeline's batches in the order in which they were recorded."""
        return [batch for batch in self.batches.values() if batch.pipeline == pipeline]

    def outstanding(self, pipeline: str) -> Batch | None:
        """Gives the planned batch of a pipeline."""
        planned = [b for b in self.batches_of(pipeline) if b.state is BatchState.PLANNED]
        return planned[0] if planned else None

    def require(self, write: LedgerWrite, later: View, *, busy: type[IngestError] = LockTimeout) -> None:
        """Lets a write begin: the ledger stands as it was seen, and nobody has locked the batch that it supersedes."""
        write.require(later)
        if write.supersedes in self.locked:
            raise busy("the batch row is locked", pipeline=write.pipeline)

    def change_state(self, batch_id: str | None, state: BatchState) -> None:
        """Puts a batch, if there is one, into a state in which nobody holds it."""
        if batch_id is not None:
            self.batches[batch_id] = replace(self.batches[batch_id], state=state)
            self.holds.pop(batch_id, None)

    def move(self, pipeline: str, moves: Iterable[PositionMove]) -> None:
        """Moves positions one after another, as a plan or a change does."""
        for move in moves:
            key = (pipeline, move.place)
            self.positions.pop(key, None)
            if move.after is not None:
                self.positions[key] = replace(move.after, updated_at=self.now)
                self.bound_timelines[key] = move.after.timeline

    def valid_through(self, pipeline: str) -> datetime | None:
        """Gives the minimum over the partitions that are not retired; ``None`` when one is unknown."""
        record = self.pipelines.get(pipeline)
        place = (record.target_schema, record.target_table, record.cluster_id) if record else None
        retired = {key[3] for key, s in self.served.items() if key[:3] == place and s.is_retired}
        times = [p.valid_through for p in self.positions_of(pipeline) if p.topic not in retired]
        known = [time for time in times if time is not None]
        return min(known) if known and len(known) == len(times) else None

    def is_partly_undone(self, batch: Batch, r: OffsetRange) -> bool:
        """Whether a roll-back took the end of a published range, or a later batch that had replaced a part of it."""
        place = (r.topic, r.generation, r.partition)
        is_cut = any(
            (span.topic, span.generation, span.partition) == place
            and span.to_timeline > r.timeline
            and span.to_offset < r.end
            for (pipeline, _), record in self.roll_backs.items()
            if pipeline == batch.pipeline
            for span in record.spans
        )
        batches = self.batches_of(batch.pipeline)
        undone = [b for b in batches[batches.index(batch) + 1 :] if b.state is BatchState.ROLLED_BACK]
        return is_cut or any(
            (other.topic, other.generation, other.partition) == place and other.start < r.end and r.start < other.end
            for later in undone
            for other in later.ranges
        )
