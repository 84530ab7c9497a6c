"""Position changes as values: what one would do, and what the ledger recorded.

A change is everything that moves positions, or what binds a pipeline, without a batch. Spans are half-open,
``[start, end)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kafka_ingest.core.ledger_view import PipelineRecord
from kafka_ingest.core.offsets import Position, TopicPartition
from kafka_ingest.core.partition_faults import PartitionFault


@dataclass(frozen=True, slots=True)
class PositionPoint:
    """Where a position stands: the part of it that a change records."""

    offset: int
    generation: int
    line: int
    topic_id: str | None
    cluster_id: str


@dataclass(frozen=True, slots=True)
class PositionChange:
    """What a change does to the position of one partition.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        before: Where the position stood; ``None`` when there was none.
        after: Where it stands; ``None`` when there is none any more, as in a new log with fewer partitions.
        given_up: Offsets ``(start, end)`` that will not be read because of the change, in the log of ``after``.
    """

    topic: str
    partition: int
    before: PositionPoint | None
    after: PositionPoint | None
    given_up: tuple[int, int] | None = None

    @property
    def read_again(self) -> tuple[int, int] | None:
        """Offsets ``(start, end)`` that were committed and are to be read again."""
        if self.before is None or self.after is None or self.before.generation != self.after.generation:
            return None
        start, end = self.after.offset, self.before.offset
        return (start, end) if start < end else None


@dataclass(frozen=True, slots=True)
class SettingChange:
    """What a change does to one of the things that bind a pipeline."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class PositionMove:
    """A position before and after a change, as a plan of the change has it."""

    before: Position | None
    after: Position | None
    given_up: tuple[int, int] | None = None

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        position = self.before or self.after
        assert position is not None  # noqa: S101 - a move without both is never made
        return position.topic_partition

    @property
    def change(self) -> PositionChange:
        """The part of it that is recorded."""
        place = self.place
        return PositionChange(place.topic, place.partition, _point(self.before), _point(self.after), self.given_up)


def _point(position: Position | None) -> PositionPoint | None:
    if position is None:
        return None
    return PositionPoint(
        position.committed_offset, position.generation, position.line, position.topic_id, position.cluster_id
    )


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What a change would do; nothing at all when everything is there already.

    Attributes:
        moves: Positions that change, ordered by (topic, partition).
        binding: What binds the pipeline after the change; ``None`` when that stays.
        retired_topic: Topic that is retired.
        topic_read_again: Topic that is retired no more.
        settings: ``binding`` and the topics for people: what they change.
        faults: What prevents the change, all at once.
    """

    moves: tuple[PositionMove, ...] = ()
    binding: PipelineRecord | None = None
    retired_topic: str | None = None
    topic_read_again: str | None = None
    settings: tuple[SettingChange, ...] = ()
    faults: tuple[PartitionFault, ...] = ()

    @property
    def positions(self) -> tuple[PositionChange, ...]:
        """The part of the moves that is recorded."""
        return tuple(move.change for move in self.moves)


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A change as the ledger holds it.

    ``superseded`` is the batch that it took out of the way; ``arguments`` are the request's.
    """

    pipeline: str
    request_id: str
    kind: str
    arguments: str
    who: str
    why: str
    at: datetime
    positions: tuple[PositionChange, ...] = ()
    settings: tuple[SettingChange, ...] = ()
    superseded: str | None = None
