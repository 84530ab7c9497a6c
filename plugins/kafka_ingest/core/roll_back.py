"""Roll-back: what was published and what undoing it means, as values; and the ports that a roll-back needs.

A roll-back undoes batches that moved the position, newest first. Rows and dead letters are found by identity in
``[committed_before, committed_after)``, whatever batch wrote them last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from kafka_ingest.core.batch import Batch, BatchState
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.log_state import LogSnapshot
from kafka_ingest.core.offsets import OffsetRange, Position, TopicPartition
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.settings import IsolationLevel, TopicSelection


@dataclass(frozen=True, slots=True)
class RollBackRequest:
    """Who wants what undone, and why. The same request id is done once, however often it comes.

    Attributes:
        request_id: Identity of the request.
        pipeline: Pipeline name.
        batches: How many batches to undo: the newest ones that moved the position.
        who: Airflow user or user of the operating system.
        why: The reason, for people; never empty.
        supersede: Take a planned batch out of the way, instead of being refused.
        allow_compacted: Go on where compaction may have taken records that the table still holds.
    """

    request_id: str
    pipeline: str
    batches: int
    who: str
    why: str
    supersede: bool = False
    allow_compacted: bool = False


@dataclass(frozen=True, slots=True)
class WrittenCounts:
    """Rows of the target and dead letters, in a range of offsets."""

    rows: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class WrittenRange:
    """A published range and what its batch counted in it."""

    range: OffsetRange
    counts: WrittenCounts


@dataclass(frozen=True, slots=True)
class Writer:
    """A batch that published, whether it still stands or was rolled back."""

    batch: Batch
    ranges: tuple[WrittenRange, ...]

    @property
    def moved(self) -> tuple[OffsetRange, ...]:
        """The ranges that moved a position; none in a batch that only reloaded."""
        return tuple(w.range for w in self.ranges if w.range.committed_after > w.range.committed_before)

    @property
    def can_be_undone(self) -> bool:
        """Whether it is committed and moved a position."""
        return self.batch.state is BatchState.COMMITTED and bool(self.moved)


@dataclass(frozen=True, slots=True)
class UndoneSpan:
    """What a roll-back did to one partition: offsets ``[to_offset, from_offset)`` are no longer loaded."""

    topic: str
    partition: int
    generation: int
    from_offset: int
    to_offset: int
    from_line: int
    to_line: int
    counts: WrittenCounts

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class RollBackRecord:
    """A roll-back as the ledger holds it, in its ``position_change`` rows.

    Attributes:
        request_id: Identity of the request.
        batches: How many batches the request named.
        batch_ids: The batches that were undone, the newest first.
        superseded: The planned batch that was taken out of the way.
        spans: One for each partition whose position was lowered, ordered by (topic, partition).
    """

    request_id: str
    batches: int
    batch_ids: tuple[str, ...]
    superseded: str | None
    spans: tuple[UndoneSpan, ...]


@dataclass(frozen=True, slots=True)
class RollBackView:
    """The ledger as one short transaction saw it.

    Attributes:
        ledger: What a plan would see: pipeline, positions, served topics, outstanding batch.
        bound_lines: For each partition the newest line that a position change other than a roll-back belongs to: what
            lies on an older line was loaded before that change.
        writers: Batches that published, the newest first, back to the oldest that the request may undo.
        used_for: The kind of position change that the request id already stands for.
        recorded: The roll-back that it stands for.
    """

    ledger: PlanView
    bound_lines: Mapping[TopicPartition, int]
    writers: tuple[Writer, ...]
    used_for: str | None = None
    recorded: RollBackRecord | None = None

    def still_stands(self, later: RollBackView) -> bool:
        """Whether what was chosen from this view may be done when the ledger looks like ``later``."""
        return self.ledger.still_stands(later.ledger) and replace(self, ledger=later.ledger) == later


@dataclass(frozen=True, slots=True)
class LoweredPosition:
    """A position before and after: identities in ``[after.committed_offset, before.committed_offset)`` are deleted."""

    before: Position
    after: Position

    @property
    def span_offsets(self) -> int:
        """Number of offsets that are no longer loaded."""
        return self.before.committed_offset - self.after.committed_offset


@dataclass(frozen=True, slots=True)
class RollBackPlan:
    """What a roll-back would do.

    Attributes:
        request: Who asks for what.
        batches: Batches to undo, the newest first.
        positions: Positions to lower, ordered by (topic, partition).
        counted: Ranges that must hold as many rows and dead letters as were counted, before anything is deleted: those
            of the latest writers that no later one wrote into.
        supersedes: The planned batch that is taken out of the way.
        faults: What stops it.
    """

    request: RollBackRequest
    batches: tuple[Batch, ...]
    positions: tuple[LoweredPosition, ...]
    counted: tuple[WrittenRange, ...]
    supersedes: str | None
    faults: tuple[PartitionFault, ...]

    def record(self, deleted: Mapping[TopicPartition, WrittenCounts]) -> RollBackRecord:
        """Gives what the ledger is to hold, given what was deleted in each partition; nothing where it is missing."""
        return RollBackRecord(
            request_id=self.request.request_id,
            batches=self.request.batches,
            batch_ids=tuple(batch.batch_id for batch in self.batches),
            superseded=self.supersedes,
            spans=tuple(
                UndoneSpan(
                    topic=lowered.before.topic,
                    partition=lowered.before.partition,
                    generation=lowered.before.generation,
                    from_offset=lowered.before.committed_offset,
                    to_offset=lowered.after.committed_offset,
                    from_line=lowered.before.line,
                    to_line=lowered.after.line,
                    counts=deleted.get(lowered.before.topic_partition, WrittenCounts(0, 0)),
                )
                for lowered in self.positions
            ),
        )


class RollBackTransaction(Protocol):
    """The one transaction of a roll-back. Statements in the order of the methods."""

    def lock(self, seen: RollBackView) -> None:
        """Locks pipeline, batches and positions, supersedes the outstanding batch where the plan says so.

        Raises:
            LedgerMoved: The ledger no longer stands as it was ``seen``.
        """

    def count(self, ranges: Sequence[WrittenRange]) -> Sequence[WrittenCounts]:
        """Counts what the target and the ledger hold in each range now, by identity.

        Raises:
            TargetMismatch: The target or one of its metadata columns is gone.
        """

    def delete(self) -> Mapping[TopicPartition, WrittenCounts]:
        """Deletes rows and dead letters by identity; gives their numbers by partition.

        Raises:
            TargetMismatch: A constraint or trigger of the target refused it.
        """

    def record(self, record: RollBackRecord) -> None:
        """Lowers the positions, sets the batches' state, and stores the position changes.

        Raises:
            LedgerMoved: A position or a batch no longer stands as it was seen.
        """

    def commit(self) -> None:
        """Commits; durable on return.

        Raises:
            CommitStateUnknown: The connection broke before the answer; the same request again decides.
        """


class RollBackLedger(Protocol):
    """The ledger and the target, as far as a roll-back goes."""

    def roll_back_view(self, request: RollBackRequest) -> RollBackView:
        """Reads what a roll-back needs, at one moment."""

    def begin_roll_back(self, plan: RollBackPlan) -> AbstractContextManager[RollBackTransaction]:
        """Opens a transaction for a plan without faults; leaving the context without commit rolls it back."""


class RollBackLog(Protocol):
    """Kafka as a roll-back asks it."""

    def snapshot(self, topics: TopicSelection, isolation_level: IsolationLevel) -> LogSnapshot:
        """Describes the topics and the offsets of all their partitions (``core.ports.Log``)."""

    def cleanup_policies(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Gives ``cleanup.policy`` of topics as they apply; a topic whose settings cannot be read is missing.

        Raises:
            BrokerUnavailable: No answer within the time-out.
        """
