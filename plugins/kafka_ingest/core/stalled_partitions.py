"""Partitions where nothing can be read although records wait: an open producer transaction pins the readable end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from kafka_ingest.core.log_observations import LogObservation
from kafka_ingest.core.log_state import PartitionState
from kafka_ingest.core.offsets import Position, TopicPartition


@dataclass(frozen=True, slots=True)
class StalledPartition:
    """One partition under ``read_committed`` whose last stable offset has not passed the committed offset.

    Every run is right to read nothing there, so nothing fails; without this the pipeline would stand still in silence.

    Attributes:
        where: The partition.
        end_offset: Last stable offset: where the oldest open transaction begins.
        high_watermark: What is in the log; it climbs while the end offset stays.
        valid_through: Time up to which the partition is complete, ``None`` when unknown: since then it stands.
        seconds: How long plans have seen this end offset held back; 0 when this plan is the first.
        climbed_offsets: How far the high watermark has climbed in that time.
    """

    where: TopicPartition
    end_offset: int
    high_watermark: int
    valid_through: datetime | None
    seconds: float = 0.0
    climbed_offsets: int = 0

    def __str__(self) -> str:
        hanging = ""
        if self.seconds:
            hanging = f", for {self.seconds:.0f} seconds, in which the high watermark climbed by {self.climbed_offsets}"
        since = self.valid_through.isoformat(timespec="seconds") if self.valid_through else "no known time"
        return (
            f"{self.where}: an open producer transaction holds back {self.high_watermark - self.end_offset} offsets: "
            f"readable up to {self.end_offset}, high watermark {self.high_watermark}, complete up to {since}{hanging}; "
            "see docs/runbook.md, section Warnings of a plan"
        )


def stalled_partition(position: Position, state: PartitionState) -> StalledPartition | None:
    """Gives the partition as stalled when records wait in it and none of them may be read."""
    end, high = state.end_offset, state.high_watermark
    if end is None or high is None or not end <= position.committed_offset < high:
        return None
    return StalledPartition(position.topic_partition, end, high, position.valid_through)


def since_observation(stalled: StalledPartition, seen: LogObservation) -> StalledPartition:
    """Says how long earlier plans have seen the same end offset held back: a transaction that works soon moves it."""
    if seen.pinned_since is None or seen.pinned_high_watermark is None:
        return stalled
    return replace(
        stalled,
        seconds=max(0.0, (seen.seen_at - seen.pinned_since).total_seconds()),
        climbed_offsets=seen.high_watermark - seen.pinned_high_watermark,
    )
