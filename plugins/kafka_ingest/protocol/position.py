"""Where a pipeline stands in a log: partitions, positions, half-open offset ranges, and their faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

# Every range is half-open: ``[start, end)``.


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a pipeline stands in one partition.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        generation: How many re-creations of the topic were accepted; 0 at first.
        topic_id: Kafka's id of the topic that the offsets belong to; ``None`` with ``topic_identity: none``.
        cluster_id: Kafka's id of the cluster that the offsets belong to.
        committed_offset: Next offset to read.
        loaded_to: The greatest committed offset that this generation ever had.
        timeline: Number of backward changes so far (column ``line``); within a timeline the ranges form a chain.
        leader_epoch: Leader epoch at the end of the last read; ``None`` before the first read.
        valid_through: Up to this time the partition is complete in the target; ``None`` when unknown.
        updated_at: When a batch, a change or a plan that found nothing to read last wrote the position, by the
            database's clock; ``None`` before it is stored. It orders partitions under a limit, and is no part of where
            the pipeline stands: positions that differ in it alone are equal.
    """

    topic: str
    partition: int
    generation: int
    topic_id: str | None
    cluster_id: str
    committed_offset: int
    loaded_to: int
    timeline: int = 0
    leader_epoch: int | None = None
    valid_through: datetime | None = None
    updated_at: datetime | None = field(default=None, compare=False)

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that this is the position of."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``[start, end)`` of one partition that one batch reads, frozen when it is planned.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        generation: Generation of the topic.
        topic_id: Kafka's topic id at the time of the plan; ``None`` with ``topic_identity: none``.
        timeline: Timeline of the position.
        start: First offset to read; never above ``committed_before``.
        end: First offset not to read; above ``start``.
        committed_before: The position that the batch starts from.
        loaded_to: The greatest committed offset that the generation ever had: below it rows may exist, which the batch
            replaces; never below ``committed_before``.
        leader_epoch: Leader epoch to read with from ``committed_before`` on, where known.
        reaches_high_watermark: Whether ``end`` was the high watermark when the batch was planned.
    """

    topic: str
    partition: int
    generation: int
    topic_id: str | None
    timeline: int
    start: int
    end: int
    committed_before: int
    loaded_to: int
    leader_epoch: int | None = None
    reaches_high_watermark: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"{self}: a range needs 0 <= start < end")
        if self.start > self.committed_before:
            raise ValueError(f"{self}: start lies above committed_before {self.committed_before}: a gap")
        if self.loaded_to < self.committed_before:
            raise ValueError(f"{self}: loaded_to {self.loaded_to} lies below committed_before {self.committed_before}")

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] [{self.start}, {self.end})"

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the range belongs to."""
        return TopicPartition(self.topic, self.partition)

    @property
    def committed_after(self) -> int:
        """The position once the batch is published: publishing never moves it backwards."""
        return max(self.committed_before, self.end)

    @property
    def replaced_to(self) -> int:
        """Offsets in ``[start, replaced_to)`` were loaded before and are replaced; ``start`` when none are."""
        return max(self.start, min(self.end, self.loaded_to))

    @property
    def span_offsets(self) -> int:
        """Number of offsets in the range, not of records."""
        return self.end - self.start
