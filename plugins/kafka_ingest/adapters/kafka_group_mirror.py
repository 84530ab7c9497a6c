"""Copies positions to a Kafka consumer group: port ``GroupMirror`` on a real cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing

from kafka_ingest.adapters.kafka_admin import KafkaAdmin
from kafka_ingest.core.errors import BrokerUnavailable, ConfigError
from kafka_ingest.core.offsets import TopicPartition

#: So many refused partitions are named; one cause usually refuses all.
_NAMED = 5

#: A client that asks for the coordinator while the cluster makes its first group may wait for an answer that never
#: comes, and a new client gets it at once (librdkafka 2.16 and Kafka 4.2; seen with brokers just started, under load).
_TRIES = 3
_PAUSE_SECONDS = 0.5


class KafkaGroupMirror:
    """Sets a group's offsets as an administrator would: it joins no group and reads none.

    Args:
        config: librdkafka configuration, as ``kafka_config.client_config`` gives it.
        timeout_seconds: Longest wait for one of three tries. Short: a run waits for it after its work is done.
    """

    def __init__(self, config: Mapping[str, str], *, timeout_seconds: float = 5) -> None:
        self._config = config
        self._timeout_seconds = timeout_seconds

    def store(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets the group's offsets; see the port. One request to the group's coordinator, whatever the partitions."""
        if not offsets:
            return
        refused = self._refused(group, offsets)
        if refused:
            named = [f"{where}: {words}" for where, words in sorted(refused.items())]
            raise ConfigError(
                f"Kafka did not store {len(refused)} of {len(offsets)} offsets of the consumer group {group}",
                expected="a group without members, and the right READ on the group and its topics",
                found="; ".join(named[:_NAMED]),
                next_command="stop consumers that use this group, grant READ on it, or set mirror_group: false",
            )

    def _refused(self, group: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        for _ in range(_TRIES - 1):
            try:
                return self._store(group, offsets)
            except BrokerUnavailable:
                time.sleep(_PAUSE_SECONDS)
        return self._store(group, offsets)

    def _store(self, group: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        with closing(KafkaAdmin(self._config, timeout_seconds=self._timeout_seconds)) as admin:
            return admin.store_group_offsets(group, offsets)
