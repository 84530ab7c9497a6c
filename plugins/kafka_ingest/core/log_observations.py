"""What plans saw of a partition's log, carried from plan to plan: how fast retention goes, and since when it is pinned.

One row a partition, whatever the number of plans. It decides nothing about what is read; losing it loses warnings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from kafka_ingest.core.log_state import LogSnapshot, PartitionState, TopicState
from kafka_ingest.core.offsets import TopicPartition

#: Retention deletes whole segments, so the log start jumps. Its rate is measured over 12 to 24 hours of plans: long
#: enough for several segments and for a day's peaks, short enough to follow a changed ``retention.ms``.
_HALF_WINDOW = timedelta(hours=12)

#: No rate before an hour of plans: one jump seen over minutes would look like a flood. Brokers look for segments to
#: delete every five minutes (``log.retention.check.interval.ms``), so an hour has seen twelve such looks.
_SHORTEST_WINDOW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class LogObservation:
    """One partition as the newest plan saw it, and what it takes to compare it with earlier plans.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        topic_id: The topic that was seen; another id begins anew.
        seen_at: When Kafka was asked, by the planner's clock (UTC).
        log_start_offset: First offset that the log held.
        end_offset: What could be read under the pipeline's isolation level.
        high_watermark: End of what was replicated.
        rate_from_at: From here on the rate of retention is measured.
        rate_from_offset: Log start offset at ``rate_from_at``.
        next_rate_from_at: Where the measuring goes on from when the window has become too long.
        next_rate_from_offset: Log start offset at ``next_rate_from_at``.
        pinned_since: First plan that saw this end offset below the high watermark; ``None`` when nothing is held back.
        pinned_high_watermark: High watermark at ``pinned_since``.
    """

    topic: str
    partition: int
    topic_id: str | None
    seen_at: datetime
    log_start_offset: int
    end_offset: int
    high_watermark: int
    rate_from_at: datetime
    rate_from_offset: int
    next_rate_from_at: datetime
    next_rate_from_offset: int
    pinned_since: datetime | None = None
    pinned_high_watermark: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that was seen."""
        return TopicPartition(self.topic, self.partition)

    @property
    def retention_offsets_per_second(self) -> float | None:
        """How fast the log start moves; ``None`` while plans have seen too little of it."""
        window = self.seen_at - self.rate_from_at
        if window < _SHORTEST_WINDOW:
            return None
        return (self.log_start_offset - self.rate_from_offset) / window.total_seconds()


def observe(snapshot: LogSnapshot, stored: Iterable[LogObservation]) -> tuple[LogObservation, ...]:
    """Gives the observations after a snapshot, ordered by (topic, partition).

    Args:
        snapshot: The log now. Partitions without a leader or without an answer keep what is stored.
        stored: What earlier plans left.
    """
    before = {(observation.topic, observation.partition): observation for observation in stored}
    return tuple(
        _observation(topic, partition, snapshot.taken_at, before.get((name, number)))
        for name, topic in sorted(snapshot.topics.items())
        for number, partition in sorted(topic.partitions.items())
        if partition.end_offset is not None
    )


def newest(observations: Iterable[LogObservation]) -> tuple[LogObservation, ...]:
    """Gives those of the newest plan: others are of partitions that Kafka did not tell about, or that are retired."""
    known = tuple(observations)
    last = max((observation.seen_at for observation in known), default=None)
    return tuple(observation for observation in known if observation.seen_at == last)


def _observation(
    topic: TopicState, state: PartitionState, at: datetime, before: LogObservation | None
) -> LogObservation:
    start, end, high = state.log_start_offset or 0, state.end_offset or 0, state.high_watermark or 0
    if before is not None and (before.topic_id != topic.topic_id or before.log_start_offset > start):
        before = None  # another log
    (from_at, from_offset), (next_at, next_offset) = _window(before, at, start)
    pinned_since, pinned_high = _pin(before, at, end, high)
    return LogObservation(
        topic=topic.topic,
        partition=state.partition,
        topic_id=topic.topic_id,
        seen_at=at,
        log_start_offset=start,
        end_offset=end,
        high_watermark=high,
        rate_from_at=from_at,
        rate_from_offset=from_offset,
        next_rate_from_at=next_at,
        next_rate_from_offset=next_offset,
        pinned_since=pinned_since,
        pinned_high_watermark=pinned_high,
    )


_Anchor = tuple[datetime, int]


def _window(before: LogObservation | None, at: datetime, start: int) -> tuple[_Anchor, _Anchor]:
    """Gives where the rate is measured from now, and from where next; both move on every half window."""
    if before is None:
        return (at, start), (at, start)
    then = (before.next_rate_from_at, before.next_rate_from_offset)
    if at - before.next_rate_from_at >= _HALF_WINDOW:
        return then, (at, start)
    return (before.rate_from_at, before.rate_from_offset), then


def _pin(before: LogObservation | None, at: datetime, end: int, high: int) -> tuple[datetime | None, int | None]:
    if end >= high:
        return None, None
    if before is not None and before.end_offset == end and before.pinned_since is not None:
        return before.pinned_since, before.pinned_high_watermark
    return at, high
