"""What Kafka said of a log: one snapshot, and what earlier plans saw of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kafka_ingest.protocol.position import Position, TopicPartition
from kafka_ingest.settings import WatchSettings

# ----------
# The topics of a pipeline as Kafka described them at one moment.


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition's log.

    Attributes:
        partition: Partition number.
        has_leader: Whether a leader is known; without one the offsets are ``None``.
        log_start_offset: First offset that the log still holds.
        high_watermark: End of what is replicated, whatever the isolation level.
        end_offset: What a consumer may read up to under the pipeline's isolation level: the last stable offset under
            ``read_committed``, else the high watermark.
        fault: The broker's own words when the offsets of this partition could not be had; empty otherwise.
    """

    partition: int
    has_leader: bool
    log_start_offset: int | None = None
    high_watermark: int | None = None
    end_offset: int | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """The first offset at or after some time.

    ``record_time_ms`` is the time of its record (ms since 1970 UTC); ``None`` where no record is that late: then
    ``offset`` is the high watermark.
    """

    offset: int
    record_time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic: its id and its partitions by number.

    ``topic_id`` is ``None`` where the broker does not tell one (brokers before 2.8, or a zero id). ``may_read`` is
    whether this client has the right READ; ``None`` where the broker does not tell rights (before 2.3, KIP-430).
    """

    topic: str
    topic_id: str | None
    partitions: Mapping[int, PartitionState]
    may_read: bool | None = None


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """All topics of a pipeline as Kafka described them at ``taken_at`` (UTC)."""

    cluster_id: str
    topics: Mapping[str, TopicState]
    taken_at: datetime


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Ids that tell one log from another; Kafka is asked for them again just before publishing.

    ``topic_ids`` has an entry for every topic asked for; ``None`` where the broker tells no id, and no entry where the
    topic does not exist.
    """

    cluster_id: str
    topic_ids: Mapping[str, str | None]


# ----------
# What plans saw of a partition's log: how fast retention deletes, and since when an open transaction holds it back.
#
# One row a partition, however many plans. It does not decide what is read; losing it loses warnings.

#: Retention deletes whole segments, so the log start jumps. Its rate is measured over 12 to 24 hours of plans: long
#: enough for several segments and for a day's peaks, short enough to follow a changed ``retention.ms``.
_HALF_WINDOW = timedelta(hours=12)

#: No rate before an hour of plans: one jump seen over minutes would look like a flood. Brokers look for segments to
#: delete every five minutes (``log.retention.check.interval.ms``), so an hour has seen twelve such looks.
_SHORTEST_WINDOW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class LogObservation:
    """One partition as the newest plan saw it, with what a comparison with earlier plans needs.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        topic_id: The topic that was seen; another id begins anew.
        seen_at: When Kafka was asked, by the planner's clock (UTC).
        log_start_offset: First offset that the log held.
        end_offset: What could be read under the pipeline's isolation level.
        high_watermark: End of what was replicated.
        rate_from_at: The rate of retention is measured from here on.
        rate_from_offset: Log start offset at ``rate_from_at``.
        next_rate_from_at: Start of the next measurement, for when the window has become too long.
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
    """Return the observations after a snapshot, ordered by (topic, partition).

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
    """Return those of the newest plan: the others are of partitions that are retired or that Kafka left out."""
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
    """Return the start of this measurement of the rate and of the next; both move on every half window."""
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


# ----------
# Headroom: how far retention is behind the committed offset, in offsets and in time.


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
        """Offsets that could be read and were not; 0 where an open transaction begins before the position."""
        return max(0, self.end_offset - self.committed_offset)

    @property
    def is_stalled(self) -> bool:
        """Whether records wait and none of them could be read."""
        return self.end_offset <= self.committed_offset < self.high_watermark

    def is_short(self, settings: WatchSettings) -> bool:
        """Tell whether records may soon be lost.

        Nothing is short where retention never deleted, or where no record waits: retention may then come up to the
        position. Where it has passed the position, that is a fault (``OffsetsExpired``) and not short headroom.
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
    """Match positions with the observations of their logs, ordered by (topic, partition)."""
    seen = {(observation.topic, observation.partition): observation for observation in observations}
    return tuple(
        _headroom(position, found)
        for position in sorted(positions, key=lambda p: (p.topic, p.partition))
        if (found := seen.get((position.topic, position.partition)))
        and (found.topic_id is None or position.topic_id in (None, found.topic_id))
    )


def short_headrooms(known: Iterable[Headroom], settings: WatchSettings) -> tuple[Headroom, ...]:
    """Return the partitions that may soon lose records, the most urgent first."""
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


# ----------
# Stalled partitions: records wait, but an open producer transaction holds back the readable end.


@dataclass(frozen=True, slots=True)
class StalledPartition:
    """One partition under ``read_committed`` whose last stable offset has not passed the committed offset.

    A run that reads nothing there is right, so nothing fails; without this the pipeline would silently stand still.

    Attributes:
        where: The partition.
        end_offset: Last stable offset: where the oldest open transaction begins.
        high_watermark: What is in the log; it climbs while the end offset stays.
        valid_through: Time up to which the partition is complete, and at which it stalled; ``None`` when unknown.
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
    """Return the partition as stalled when records wait in it and none of them can be read."""
    end, high = state.end_offset, state.high_watermark
    if end is None or high is None or not end <= position.committed_offset < high:
        return None
    return StalledPartition(position.topic_partition, end, high, position.valid_through)


def since_observation(stalled: StalledPartition, seen: LogObservation) -> StalledPartition:
    """Add how long earlier plans have seen this end offset held back; a transaction in use moves it soon."""
    if seen.pinned_since is None or seen.pinned_high_watermark is None:
        return stalled
    return replace(
        stalled,
        seconds=max(0.0, (seen.seen_at - seen.pinned_since).total_seconds()),
        climbed_offsets=seen.high_watermark - seen.pinned_high_watermark,
    )
