"""Kafka in memory: the port ``Log``, with the events that happen to a log. It passes the contract of the real one."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum

from kafka_ingest.errors import BrokerUnavailable, IngestError
from kafka_ingest.protocol.log import LogIdentity, LogSnapshot, PartitionState, TimedOffset, TopicState
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.settings import IsolationLevel, TopicSelection


class Fate(Enum):
    """What became of the transaction that an entry belongs to."""

    PLAIN = "plain"
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class FakeTransaction:
    """A producer's transaction in one partition."""

    log: FakeLog
    where: TopicPartition
    fate: Fate = Fate.OPEN

    def produce(self, *values: bytes | None) -> None:
        self.log.append(self.where.topic, *values, partition=self.where.partition, transaction=self)

    def commit(self) -> None:
        self._end(Fate.COMMITTED)

    def abort(self) -> None:
        self._end(Fate.ABORTED)

    def _end(self, fate: Fate) -> None:
        self.log.partition(self.where).add(Entry(None, None, 0, marker=True))
        self.fate = fate


@dataclass
class Entry:
    """One offset: a record, or the marker that ends a transaction."""

    value: bytes | None
    key: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]] | None = None
    transaction: FakeTransaction | None = None
    marker: bool = False
    leader_epoch: int = 0

    @property
    def fate(self) -> Fate:
        return self.transaction.fate if self.transaction else Fate.PLAIN

    def is_readable(self, isolation_level: IsolationLevel) -> bool:
        if self.marker:
            return False
        return isolation_level is IsolationLevel.READ_UNCOMMITTED or self.fate in {Fate.PLAIN, Fate.COMMITTED}


@dataclass
class FakePartition:
    """One partition: entries by offset, some of which may be gone.

    ``epoch_starts`` is the broker's leader epoch cache: the first offset of each epoch, whatever compaction took away.
    """

    entries: dict[int, Entry] = field(default_factory=dict)
    log_start: int = 0
    high_watermark: int = 0
    leader_epoch: int = 0
    has_leader: bool = True
    fault: str = ""
    epoch_starts: dict[int, int] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        entry.leader_epoch = self.leader_epoch
        self.epoch_starts.setdefault(self.leader_epoch, self.high_watermark)
        self.entries[self.high_watermark] = entry
        self.high_watermark += 1

    def end_offset(self, isolation_level: IsolationLevel) -> int:
        if isolation_level is IsolationLevel.READ_UNCOMMITTED:
            return self.high_watermark
        still_open = (offset for offset, entry in self.entries.items() if entry.fate is Fate.OPEN)
        return min(still_open, default=self.high_watermark)

    def end_of_epoch(self, leader_epoch: int) -> int:
        """First offset of a later epoch; the high watermark when there is none."""
        later = (max(start, self.log_start) for epoch, start in self.epoch_starts.items() if epoch > leader_epoch)
        return min(later, default=self.high_watermark)


@dataclass
class FakeTopic:
    """One topic: an id that a new topic of the same name does not share, and its partitions."""

    topic_id: str | None
    partitions: dict[int, FakePartition]
    cleanup_policy: str = "delete"
    delete_retention_ms: int = 86_400_000


class FakeLog:
    """A cluster in memory; attributes may be changed by the test.

    Attributes:
        cluster_id: The cluster's id.
        topics: Topics by name.
        failure: Raised by every question while it is set.
        tells_topic_ids: ``False`` plays a broker without topic ids.
        questions: Names of the port's methods in the order in which they were called.
    """

    def __init__(self, cluster_id: str = "fake-cluster") -> None:
        self.cluster_id = cluster_id
        self.topics: dict[str, FakeTopic] = {}
        self.failure: IngestError | None = None
        self.tells_topic_ids = True
        self.questions: list[str] = []
        self.now_ms = 1_767_355_200_000  # 2026-01-02 12:00:00 UTC; one millisecond later with every record

    # What happens to a log.

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        assert topic not in self.topics, f"{topic} exists"
        topic_id = uuid.uuid4().hex if self.tells_topic_ids else None
        self.topics[topic] = FakeTopic(topic_id, {number: FakePartition() for number in range(partitions)})

    def delete_topic(self, topic: str) -> None:
        del self.topics[topic]

    def recreate_topic(self, topic: str, partitions: int = 1) -> None:
        self.delete_topic(topic)
        self.create_topic(topic, partitions)

    def add_partitions(self, topic: str, total: int) -> None:
        known = self.topics[topic].partitions
        assert total > len(known), "Kafka never lowers the number of partitions"
        known.update({number: FakePartition() for number in range(len(known), total)})

    def append(
        self,
        topic: str,
        *values: bytes | None,
        partition: int = 0,
        key: bytes | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        transaction: FakeTransaction | None = None,
    ) -> None:
        for value in values:
            self.now_ms += 1
            time_ms = self.now_ms if timestamp_ms is None else timestamp_ms
            entry = Entry(value, key, time_ms, headers or None, transaction)
            self.partition(TopicPartition(topic, partition)).add(entry)

    def begin(self, topic: str, *values: bytes | None, partition: int = 0) -> FakeTransaction:
        transaction = FakeTransaction(self, TopicPartition(topic, partition))
        transaction.produce(*values)
        return transaction

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Retention, or an administrator: the log starts at ``before``."""
        log = self.partition(TopicPartition(topic, partition))
        assert log.log_start <= before <= log.high_watermark
        log.log_start = before
        log.entries = {offset: entry for offset, entry in log.entries.items() if offset >= before}

    def compact(self, topic: str, partition: int, *offsets: int) -> None:
        """Take single records out; the log start does not move."""
        for offset in offsets:
            del self.partition(TopicPartition(topic, partition)).entries[offset]

    def truncate(self, topic: str, partition: int, to: int) -> None:
        """An unclean leader election: a new leader whose log ends at ``to``."""
        log = self.partition(TopicPartition(topic, partition))
        assert log.log_start <= to < log.high_watermark
        log.entries = {offset: entry for offset, entry in log.entries.items() if offset < to}
        log.high_watermark = to
        log.leader_epoch += 1
        log.epoch_starts = {epoch: start for epoch, start in log.epoch_starts.items() if start < to}

    def partition(self, where: TopicPartition) -> FakePartition:
        return self.topics[where.topic].partitions[where.partition]

    # The port.

    def snapshot(self, topics: TopicSelection, isolation_level: IsolationLevel) -> LogSnapshot:
        self._ask("snapshot")
        states = {
            name: TopicState(
                name,
                self.topics[name].topic_id,
                {
                    number: _partition_state(number, partition, isolation_level)
                    for number, partition in self.topics[name].partitions.items()
                },
            )
            for name in self._selected(topics)
        }
        return LogSnapshot(self.cluster_id, states, datetime.now(UTC))

    def offsets_at(self, time_ms: int, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, TimedOffset]:
        self._ask("offsets_at")
        found: dict[TopicPartition, TimedOffset] = {}
        for where in partitions:
            known = self.topics.get(where.topic)
            if (
                known is None
                or where.partition not in known.partitions
                or not known.partitions[where.partition].has_leader
            ):
                raise BrokerUnavailable(f"no offsets of {where}")
            found[where] = _offset_at(known.partitions[where.partition], time_ms)
        return found

    def identity(self, topics: Iterable[str]) -> LogIdentity:
        self._ask("identity")
        return LogIdentity(
            self.cluster_id, {name: self.topics[name].topic_id for name in topics if name in self.topics}
        )

    def cleanup_policies(self, topics: Iterable[str]) -> Mapping[str, str]:
        self._ask("cleanup_policies")
        return {name: self.topics[name].cleanup_policy for name in topics if name in self.topics}

    def delete_retentions(self, topics: Iterable[str]) -> Mapping[str, int | None]:
        self._ask("delete_retentions")
        known = {name: self.topics[name] for name in topics if name in self.topics}
        return {
            name: topic.delete_retention_ms if "compact" in topic.cleanup_policy else None
            for name, topic in known.items()
        }

    def mean_offset_bytes(self, ranges: Sequence[OffsetRange]) -> int | None:
        """Measure all of them, as a client with the isolation level ``read_committed``."""
        self.questions.append("mean_offset_bytes")
        held = [r for r in ranges if r.topic in self.topics and self.partition(r.topic_partition).log_start <= r.start]
        if self.failure is not None or not held:
            return None
        sizes = [
            len(entry.value or b"") + len(entry.key or b"")
            for r in held
            for offset, entry in self.partition(r.topic_partition).entries.items()
            if r.start <= offset < r.end and entry.is_readable(IsolationLevel.READ_COMMITTED)
        ]
        return round(sum(sizes) / sum(r.span_offsets for r in held))

    def _ask(self, question: str) -> None:
        self.questions.append(question)
        if self.failure is not None:
            raise self.failure

    def _selected(self, topics: TopicSelection) -> list[str]:
        if topics.pattern is None:
            return [name for name in topics.names if name in self.topics]
        return [name for name in self.topics if re.fullmatch(topics.pattern, name)]


def _partition_state(number: int, partition: FakePartition, isolation_level: IsolationLevel) -> PartitionState:
    if not partition.has_leader:
        return PartitionState(number, has_leader=False)
    if partition.fault:
        return PartitionState(number, has_leader=True, fault=partition.fault)
    return PartitionState(
        number,
        has_leader=True,
        log_start_offset=partition.log_start,
        high_watermark=partition.high_watermark,
        end_offset=partition.end_offset(isolation_level),
    )


def _offset_at(partition: FakePartition, time_ms: int) -> TimedOffset:
    if time_ms < 0:
        return TimedOffset(partition.log_start)
    for offset, entry in sorted(partition.entries.items()):
        if not entry.marker and entry.timestamp_ms >= time_ms:
            return TimedOffset(offset, entry.timestamp_ms)
    return TimedOffset(partition.high_watermark)
