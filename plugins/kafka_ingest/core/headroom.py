"""Headroom: how far retention is behind the committed offset, in offsets and in time. Warns before records are lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_ingest.core.log_observations import LogObservation
from kafka_ingest.core.offsets import Position, TopicPartition
from kafka_ingest.core.settings import WatchSettings


@dataclass(frozen=True, slots=True)
class Headroom:
    """One partition of a pipeline between log start and high watermark.

    Attributes:
        where: The partition.
        committed_offset: Next offset to read.
        log_start_offset: First offset that the log still held at the newest plan.
        end_offset: What could be read at that plan.
        high_watermark: End of the log at that plan.
        seconds: Estimate of the time until the log start reaches the committed offset, at the rate that plans
            observed; ``None`` while the log start does not move, or too little was seen of it.
    """

    where: TopicPartition
    committed_offset: int
    log_start_offset: int
    end_offset: int
    high_watermark: int
    seconds: float | None

    @property
    def offsets(self) -> int:
        """Committed offset - log start offset. Below 0, offsets that were not read are gone."""
        return self.committed_offset - self.log_start_offset

    @property
    def lag_offsets(self) -> int:
        """Offsets that could be read and were not, never below 0: an open transaction may begin before the position."""
        return max(0, self.end_offset - self.committed_offset)

    @property
    def is_stalled(self) -> bool:
        """Whether records wait and none of them could be read."""
        return self.end_offset <= self.committed_offset < self.high_watermark

    def is_short(self, settings: WatchSettings) -> bool:
        """Whether records may soon be lost.

        Not where nothing was ever deleted, and not where nothing waits: retention may then come up to the position,
        and there is nothing to lose. Nor where it has passed the position: that is a fault (``OffsetsExpired``).
        """
        if self.log_start_offset == 0 or self.offsets < 0 or self.high_watermark <= self.committed_offset:
            return False
        least_offsets, least_seconds = settings.min_headroom_offsets, settings.min_headroom_seconds
        return (least_offsets is not None and self.offsets < least_offsets) or (
            least_seconds is not None and self.seconds is not None and self.seconds < least_seconds
        )

    def __str__(self) -> str:
        in_time = "" if self.seconds is None else f", about {self.seconds:.0f} seconds at the observed rate"
        return (
            f"{self.where}: retention is {self.offsets} offsets behind the committed offset {self.committed_offset}"
            f"{in_time}, and {self.high_watermark - self.committed_offset} offsets wait; "
            "see docs/runbook.md, section Warnings of a plan"
        )


def headrooms(positions: Iterable[Position], observations: Iterable[LogObservation]) -> tuple[Headroom, ...]:
    """Puts positions and observations of the same log together, ordered by (topic, partition)."""
    seen = {(observation.topic, observation.partition): observation for observation in observations}
    return tuple(
        _headroom(position, found)
        for position in sorted(positions, key=lambda p: (p.topic, p.partition))
        if (found := seen.get((position.topic, position.partition)))
        and (found.topic_id is None or position.topic_id in (None, found.topic_id))
    )


def short_headrooms(known: Iterable[Headroom], settings: WatchSettings) -> tuple[Headroom, ...]:
    """Gives the partitions that may soon lose records, the most urgent first."""
    short = [headroom for headroom in known if headroom.is_short(settings)]
    return tuple(sorted(short, key=lambda h: (h.seconds is None, h.seconds or 0.0, h.offsets, h.where)))


def _headroom(position: Position, seen: LogObservation) -> Headroom:
    offsets, rate = position.committed_offset - seen.log_start_offset, seen.retention_offsets_per_second
    return Headroom(
        where=position.topic_partition,
        committed_offset=position.committed_offset,
        log_start_offset=seen.log_start_offset,
        end_offset=seen.end_offset,
        high_watermark=seen.high_watermark,
        seconds=offsets / rate if rate else None,
    )
