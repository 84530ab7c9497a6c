"""What happens to topics while somebody reads them: records come and go, partitions join, the topic is made anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.crash.mixed_topic import read_independently
from tests.deadlines import until
from tests.services import KAFKA_SECONDS, Producers

#: Settings of a topic whose broker compacts it as soon as a segment is full, which is a second later.
_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.0001",
    "max.compaction.lag.ms": "1000",
}
_COMPACTION_SECONDS = 60.0


class ChangingTopic:
    """One topic of one broker.

    Args:
        bootstrap: The broker.
        name: The topic, which exists.
    """

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def produce(self, values: Iterable[bytes | None], partition: int = 0, **record: Any) -> None:
        """Writes the values in this order; returns when the broker has them."""
        producers = Producers(self._bootstrap)
        sender = producers.create(linger_ms=20)
        for value in values:
            sender.produce(self.name, value=value, partition=partition, **record)
        producers.flush_all()

    def delete(self) -> None:
        self._admin.delete_topics([self.name])[self.name].result(KAFKA_SECONDS)
        until(lambda: self.id() is None, f"{self.name} is gone", KAFKA_SECONDS)

    def recreate(self, values: Iterable[bytes], partitions: int = 1) -> None:
        """Deletes the topic and makes another one of that name, with the values in its first partition."""
        self.delete()
        topic = NewTopic(self.name, num_partitions=partitions, replication_factor=1)
        self._admin.create_topics([topic])[self.name].result(KAFKA_SECONDS)
        self._until_partitions(partitions)
        self.produce(values)

    def add_partitions(self, total: int) -> None:
        self._admin.create_partitions([NewPartitions(self.name, total)])[self.name].result(KAFKA_SECONDS)
        self._until_partitions(total)

    def delete_records_below(self, offset: int) -> None:
        """Deletes records as retention does: the log start offset rises."""
        partition = TopicPartition(self.name, 0, offset)
        self._admin.delete_records([partition])[partition].result(KAFKA_SECONDS)

    def compact(self, below: int, left: int) -> None:
        """Makes the topic one that is compacted; waits until so many records are left below an offset.

        Only then, so that nothing is compacted while a test still writes what it wants to be there before.
        """
        self._configure(_COMPACTED)

        def remaining() -> int:
            # A later record rolls the segment that holds the others.
            self.produce([b"later"], key=b"later")
            return sum(offset < below for _, offset, _ in read_independently(self._bootstrap, self.name).records)

        until(lambda: remaining() == left, "the broker has compacted the log", _COMPACTION_SECONDS)

    def id(self) -> str | None:
        """Return the topic id, ``None`` while there is no such topic."""
        try:
            return str(self._description().topic_id)
        except KafkaException:
            return None

    def _configure(self, settings: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(KAFKA_SECONDS)

    def _until_partitions(self, total: int) -> None:
        until(lambda: self._leaders() == total, f"{self.name} has {total} partitions with leaders", KAFKA_SECONDS)

    def _leaders(self) -> int:
        try:
            return sum(partition.leader is not None for partition in self._description().partitions)
        except KafkaException:
            return 0

    def _description(self) -> Any:
        return self._admin.describe_topics(TopicCollection([self.name]))[self.name].result(KAFKA_SECONDS)
