"""The log of the model: the fake one, with everything written down that a later look at it no longer shows."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_ingest.protocol.position import Position, TopicPartition
from kafka_ingest.protocol.staging import Split
from kafka_ingest.settings import IsolationLevel
from tests.fakes.log import FakeLog, FakePartition, FakeTransaction, Fate

ISOLATION = IsolationLevel.READ_COMMITTED


@dataclass(frozen=True)
class Truncation:
    """An unclean leader election: what a reader saw at or above ``to`` before ``at`` was never in this log."""

    topic_id: str
    partition: int
    to: int
    at: int


@dataclass(frozen=True)
class Reading:
    """What was readable in ``[start, end)`` when a task read it.

    Attributes:
        at: When it was read, in events of the log.
        log_start: Log start offset of that moment.
        values: The readable records' values by offset.
    """

    topic: str
    topic_id: str
    cluster_id: str
    generation: int
    partition: int
    start: int
    end: int
    at: int
    log_start: int
    values: dict[int, bytes | None]

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, generation, partition."""
        return (self.topic, self.generation, self.partition)


@dataclass
class ObservedLog:
    """A fake log that counts its events.

    Attributes:
        log: What the steps see.
        now: Number of events so far.
        truncations: Every unclean election.
        log_starts: Every log start offset that a partition of a topic id ever had.
        transactions: Those that are open.
        begins_anywhere: The pipeline does not begin at the log start.
    """

    log: FakeLog = field(default_factory=FakeLog)
    now: int = 0
    truncations: list[Truncation] = field(default_factory=list)
    log_starts: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    transactions: list[FakeTransaction] = field(default_factory=list)
    begins_anywhere: bool = False

    def places(self) -> list[TopicPartition]:
        """Return all partitions of all topics."""
        return [TopicPartition(name, n) for name, topic in sorted(self.log.topics.items()) for n in topic.partitions]

    def topic_id(self, topic: str) -> str:
        topic_id = self.log.topics[topic].topic_id
        assert topic_id is not None
        return topic_id

    def could_begin(self, position: Position, offset: int) -> bool:
        """Whether a position may have begun there: at a log start, so that nothing was left out."""
        known = self.log_starts.get((position.topic_id or "", position.partition), set())
        return self.begins_anywhere or offset == 0 or offset in known

    def truncations_of(self, topic_id: str | None, partition: int) -> list[Truncation]:
        """Return the unclean elections of one partition of one topic id."""
        return [t for t in self.truncations if (t.topic_id, t.partition) == (topic_id, partition)]

    def append(self, place: TopicPartition, *values: bytes | None, transaction: FakeTransaction | None = None) -> None:
        self.now += 1
        self.log.append(place.topic, *values, partition=place.partition, transaction=transaction)

    def begin(self, place: TopicPartition) -> None:
        self.transactions.append(FakeTransaction(self.log, place))

    def end(self, transaction: FakeTransaction, fate: Fate) -> None:
        """End a transaction; nothing happens to one whose topic is gone."""
        self.now += 1
        self.transactions = [other for other in self.transactions if other is not transaction]
        if fate is Fate.COMMITTED:
            transaction.commit()
        else:
            transaction.abort()

    def delete_records(self, place: TopicPartition, before: int) -> None:
        self.now += 1
        self.log.delete_records(place.topic, place.partition, before)
        self.log_starts.setdefault((self.topic_id(place.topic), place.partition), set()).add(before)

    def compact(self, place: TopicPartition, offset: int) -> None:
        self.now += 1
        self.log.compact(place.topic, place.partition, offset)

    def truncate(self, place: TopicPartition, to: int) -> None:
        self.now += 1
        self.truncations.append(Truncation(self.topic_id(place.topic), place.partition, to, self.now))
        self.log.truncate(place.topic, place.partition, to)

    def delete_topic(self, topic: str) -> None:
        self.now += 1
        self.transactions = [t for t in self.transactions if t.where.topic != topic]
        self.log.delete_topic(topic)

    def create_topic(self, topic: str, partitions: int) -> None:
        self.now += 1
        self.log.create_topic(topic, partitions)

    def read(self, split: Split, cluster_id: str) -> Reading:
        """Return what is readable now."""
        self.now += 1
        partition = self.log.partition(split.topic_partition)
        return Reading(
            topic=split.topic,
            topic_id=self.topic_id(split.topic),
            cluster_id=cluster_id,
            generation=split.generation,
            partition=split.partition,
            start=split.start,
            end=split.end,
            at=self.now,
            log_start=partition.log_start,
            values={
                offset: entry.value
                for offset, entry in sorted(partition.entries.items())
                if split.start <= offset < split.end and entry.is_readable(ISOLATION)
            },
        )


def stable_offsets(partition: FakePartition) -> list[int]:
    """Return the offsets that the log still holds below the last stable offset."""
    end = partition.end_offset(ISOLATION)
    return [offset for offset in sorted(partition.entries) if offset < end]
