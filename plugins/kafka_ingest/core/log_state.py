"""What Kafka said about the topics of a pipeline at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


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
    """Ids that tell one log from another: asked again just before publishing.

    ``topic_ids`` has an entry for every topic asked for; ``None`` where the broker tells no id, and no entry where the
    topic does not exist.
    """

    cluster_id: str
    topic_ids: Mapping[str, str | None]
