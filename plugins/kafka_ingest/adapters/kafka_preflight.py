"""What preflight asks of Kafka: the cluster, the pipeline's topics with their replicas and settings, fetch limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import confluent_kafka

from kafka_ingest.adapters.kafka_admin import ConfigAnswer, KafkaAdmin
from kafka_ingest.adapters.kafka_log import KafkaLog
from kafka_ingest.core.log_state import TopicState
from kafka_ingest.core.preflight_facts import ClusterFacts, FetchLimits, TopicFacts
from kafka_ingest.core.preflight_kafka import RESPONSE_OVERHEAD_BYTES
from kafka_ingest.core.settings import PipelineSettings

#: librdkafka's own defaults (CONFIGURATION.md, 2.16); the second follows the first where only the first is set higher.
_FETCH_BYTES = 52_428_800
_RESPONSE_BYTES = 100_000_000


class KafkaPreflight:
    """The port ``KafkaProbe`` on a real cluster.

    Args:
        config: librdkafka configuration, as ``kafka_config.client_config`` gives it.
        admin: Asks for cluster, replicas and settings.
        log: Asks for topic ids, leaders and offsets, as a plan does.
    """

    def __init__(self, config: Mapping[str, str], admin: KafkaAdmin, log: KafkaLog) -> None:
        self._config = config
        self._admin = admin
        self._log = log

    def cluster(self) -> ClusterFacts:
        """Describes the cluster; see the port."""
        found = self._admin.cluster()
        return ClusterFacts(
            cluster_id=str(found.cluster_id),
            bootstrap=self._config["bootstrap.servers"],
            brokers=len(found.nodes),
            client_version=str(confluent_kafka.libversion()[0]),
        )

    def topics(self, settings: PipelineSettings) -> Sequence[TopicFacts]:
        """Describes the pipeline's topics; see the port."""
        states = self._log.snapshot(settings.plan.topics, settings.batch.isolation_level).topics
        described = self._admin.describe(states)
        configs = self._admin.describe_configs(described)
        return [
            _facts(
                states[name], min(len(partition.replicas) for partition in described[name].partitions), configs[name]
            )
            for name in sorted(described)
        ]

    def limits(self) -> FetchLimits:
        """Gives the client's limits; see the port."""
        fetch = int(self._config.get("fetch.max.bytes", _FETCH_BYTES))
        least = max(_RESPONSE_BYTES, fetch + RESPONSE_OVERHEAD_BYTES)
        return FetchLimits(fetch, int(self._config.get("receive.message.max.bytes", least)))


@contextmanager
def kafka_preflight(config: Mapping[str, str], *, timeout_seconds: float) -> Iterator[KafkaPreflight]:
    """Opens the port, and closes its clients at the end."""
    admin = KafkaAdmin(config, timeout_seconds=timeout_seconds)
    try:
        with KafkaLog(config, timeout_seconds=timeout_seconds) as log:
            yield KafkaPreflight(config, admin, log)
    finally:
        admin.close()


def _facts(state: TopicState, replication_factor: int, config: ConfigAnswer) -> TopicFacts:
    unreadable = tuple(
        f"partition {partition.partition}: {partition.fault or 'no leader'}"
        for _, partition in sorted(state.partitions.items())
        if partition.end_offset is None
    )
    return TopicFacts(
        topic=state.topic,
        has_topic_id=state.topic_id is not None,
        partitions=len(state.partitions),
        unreadable=unreadable,
        replication_factor=replication_factor,
        settings={} if isinstance(config, str) else config,
        refusal=config if isinstance(config, str) else "",
        may_read=state.may_read,
    )
