"""Copies positions to a Kafka consumer group: port ``GroupMirror`` on a real cluster.

A consumer commits them, one that never subscribes and so joins no group. The admin client has a request of its own for
this (``alter_consumer_group_offsets``), but its process may die of a segmentation fault when the request fails or times
out: confluent-kafka-python issues 1982 and 1640, librdkafka issue 4605; seen here with 2.15 and a broker just started.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_ingest.adapters.kafka_config import librdkafka_settings
from kafka_ingest.adapters.kafka_faults import LIBRDKAFKA_LOG, REFUSALS, ClientEvents, client_fault
from kafka_ingest.core.errors import ConfigError, IngestError
from kafka_ingest.core.offsets import TopicPartition

#: So many refused partitions are named; one cause usually refuses all.
_NAMED = 5

#: Longest wait for the group's coordinator. A cluster's first group takes some seconds to make.
_TIMEOUT_SECONDS = 15.0

#: The group's coordinator did not answer, or no broker is it at the moment.
_NO_COORDINATOR = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._WAIT_COORD,
        KafkaError._RESOLVE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
    }
)


class KafkaGroupMirror:
    """Sets a group's offsets from outside the group.

    Args:
        config: librdkafka configuration, as ``kafka_config.client_config`` gives it.
        timeout_seconds: Longest wait for the group's coordinator. Short: a run waits for it after its work is done.
    """

    def __init__(self, config: Mapping[str, str], *, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
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
        """Stores; gives the broker's words for each partition that it refused."""
        events = ClientEvents(self._config)
        wanted = [KafkaTopicPartition(item.topic, item.partition, offset) for item, offset in offsets.items()]
        settings = {**librdkafka_settings(self._config), **self._own_settings(group), "error_cb": events}
        try:
            consumer = Consumer(settings, logger=LIBRDKAFKA_LOG)
        except KafkaException as error:
            raise client_fault(error, self._config) from None
        try:
            answer = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() in _NO_COORDINATOR | REFUSALS:
                raise self._unavailable(group, events, error.args[0]) from error
            return dict.fromkeys(offsets, error.args[0].str())
        finally:
            consumer.close()
        return {TopicPartition(p.topic, p.partition): p.error.str() for p in answer if p.error is not None}

    def _own_settings(self, group: str) -> Mapping[str, object]:
        session_ms = max(3, round(1000 * self._timeout_seconds))
        # librdkafka waits as long as a session for a coordinator (rd_kafka_cgrp_defer_offset_commit, 2.16).
        return {
            "group.id": group,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": session_ms // 3,
        }

    def _unavailable(self, group: str, events: ClientEvents, error: KafkaError) -> IngestError:
        if not events.last_words or error.code() in REFUSALS:
            events(error)
        return events.unavailable(tried=f"storing offsets of group {group}", seconds=self._timeout_seconds)
