"""Kafka consumer groups in memory: port ``GroupMirror``."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from kafka_ingest.errors import ConfigError, IngestError
from kafka_ingest.protocol.position import TopicPartition


@dataclass
class FakeGroupMirror:
    """Groups that a test can look at.

    Attributes:
        partitions: What exists.
        groups: Offsets by group.
        failure: Raised by every call while it is set.
    """

    partitions: Set[TopicPartition]
    groups: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    failure: IngestError | None = None

    def store(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self.failure is not None:
            raise self.failure
        known = {where: offset for where, offset in offsets.items() if where in self.partitions}
        if known:
            self.groups.setdefault(group, {}).update(known)
        if len(known) < len(offsets):
            raise ConfigError("Kafka did not store all offsets", found=str(sorted(set(offsets) - set(known))))
