"""Kafka as the planner and the publisher see it: ids, partitions, leaders and offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import TracebackType

from confluent_kafka import IsolationLevel as KafkaIsolation
from confluent_kafka.admin import AclOperation, OffsetSpec, TopicDescription

from kafka_ingest.adapters.kafka_admin import KafkaAdmin, OffsetAnswer, OffsetKind
from kafka_ingest.adapters.topic_patterns import matching_topics
from kafka_ingest.core.errors import BrokerUnavailable
from kafka_ingest.core.log_state import LogIdentity, LogSnapshot, PartitionState, TimedOffset, TopicState
from kafka_ingest.core.offsets import TopicPartition
from kafka_ingest.core.settings import IsolationLevel, TopicSelection

#: What a broker without topic ids answers (before Kafka 2.8, KIP-516): sixteen zero bytes in base64.
ZERO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"

#: An election takes milliseconds to a few seconds; a partition is called faulty only when it lasts longer.
ELECTION_GRACE_SECONDS = 5.0

_POLL_SECONDS = 0.2

_LOG_START: OffsetKind = (OffsetSpec.earliest(), KafkaIsolation.READ_UNCOMMITTED)
_LAST_STABLE: OffsetKind = (OffsetSpec.latest(), KafkaIsolation.READ_COMMITTED)
_HIGH_WATERMARK: OffsetKind = (OffsetSpec.latest(), KafkaIsolation.READ_UNCOMMITTED)


class KafkaLog:
    """The port ``Log`` on a real cluster.

    The number of requests does not grow with the number of partitions: offsets are asked for in one request to each
    leader and each kind of offset, all at once. It opens no consumer and joins no group. Not safe for several threads.

    Args:
        config: librdkafka configuration, as ``kafka_config.client_config`` gives it.
        timeout_seconds: Longest wait for one answer.
    """

    def __init__(self, config: Mapping[str, str], *, timeout_seconds: float = 30) -> None:
        self._admin = KafkaAdmin(config, timeout_seconds=timeout_seconds)

    def __enter__(self) -> KafkaLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leaves Kafka and ends the client's threads; idempotent."""
        self._admin.close()

    def snapshot(self, topics: TopicSelection, isolation_level: IsolationLevel) -> LogSnapshot:
        """Describes the selected topics; see the port. Waits a few seconds for an election that is under way."""
        grace = time.monotonic() + ELECTION_GRACE_SECONDS
        while True:
            taken_at = datetime.now(UTC)
            cluster_id = self._admin.cluster_id()
            states = self._states(self._select(topics), isolation_level)
            if time.monotonic() > grace or not any(_is_faulty(state) for state in states.values()):
                return LogSnapshot(cluster_id, states, taken_at)
            time.sleep(_POLL_SECONDS)

    def offsets_at(self, time_ms: int, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, TimedOffset]:
        """Gives the first offset at or after a time; see the port.

        A time before 1970 gives the log start: in the protocol negative times are names of offsets (-1 is "latest").
        """
        wanted = list(partitions)
        spec = OffsetSpec.for_timestamp(time_ms) if time_ms >= 0 else OffsetSpec.earliest()
        found = self._known_offsets(wanted, (spec, KafkaIsolation.READ_UNCOMMITTED))
        too_late = [partition for partition, timed in found.items() if timed.offset < 0]
        return {**found, **self._known_offsets(too_late, _HIGH_WATERMARK)}

    def identity(self, topics: Iterable[str]) -> LogIdentity:
        """Asks again for cluster id and topic ids; see the port."""
        cluster_id = self._admin.cluster_id()
        described = self._admin.describe(topics)
        return LogIdentity(cluster_id, {topic: _topic_id(found) for topic, found in described.items()})

    def cleanup_policies(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Gives ``cleanup.policy`` of topics as they apply; one whose settings cannot be read is missing."""
        answers = self._admin.describe_configs(topics)
        return {topic: found["cleanup.policy"] for topic, found in answers.items() if not isinstance(found, str)}

    def _known_offsets(self, wanted: list[TopicPartition], kind: OffsetKind) -> dict[TopicPartition, TimedOffset]:
        [answers] = self._admin.offsets(wanted, kind)
        return _all_known(dict(zip(wanted, answers, strict=True)))

    def _states(
        self, described: Mapping[str, TopicDescription], isolation_level: IsolationLevel
    ) -> dict[str, TopicState]:
        partitions = {
            topic: {info.id: PartitionState(info.id, has_leader=False) for info in description.partitions}
            for topic, description in described.items()
        }
        with_leader = [
            TopicPartition(topic, info.id)
            for topic, description in described.items()
            for info in description.partitions
            if _has_leader(info.leader)
        ]
        for found, *answers in zip(with_leader, *self._offsets(with_leader, isolation_level), strict=True):
            partitions[found.topic][found.partition] = _state(found.partition, *answers)
        return {
            topic: TopicState(topic, _topic_id(description), partitions[topic], _may_read(description))
            for topic, description in described.items()
        }

    def _offsets(
        self, partitions: list[TopicPartition], isolation_level: IsolationLevel
    ) -> tuple[list[OffsetAnswer], list[OffsetAnswer], list[OffsetAnswer]]:
        """Gives log start, end and high watermark, asked for in this order so that start <= end <= HW."""
        kinds = [_LOG_START]
        if isolation_level is IsolationLevel.READ_COMMITTED:
            kinds.append(_LAST_STABLE)
        answers = self._admin.offsets(partitions, *kinds, _HIGH_WATERMARK)
        return answers[0], answers[1], answers[-1]

    def _select(self, topics: TopicSelection) -> dict[str, TopicDescription]:
        if topics.pattern is None:
            return self._admin.describe(topics.names)
        described = self._admin.describe(matching_topics(topics.pattern, self._admin.topic_names()))
        return {topic: found for topic, found in described.items() if not found.is_internal}


def _state(partition: int, start: OffsetAnswer, end: OffsetAnswer, high: OffsetAnswer) -> PartitionState:
    """Puts the answers for one partition together; the first fault among them makes all offsets unknown."""
    if isinstance(start, TimedOffset) and isinstance(end, TimedOffset) and isinstance(high, TimedOffset):
        return PartitionState(partition, True, start.offset, high.offset, end.offset)
    fault = next(answer for answer in (start, end, high) if isinstance(answer, str))
    return PartitionState(partition, has_leader=True, fault=fault)


def _is_faulty(state: TopicState) -> bool:
    return any(partition.end_offset is None for partition in state.partitions.values())


def _has_leader(leader: object) -> bool:
    """A missing leader is no node, or a node with a negative id."""
    return leader is not None and int(getattr(leader, "id", -1)) >= 0


def _may_read(description: TopicDescription) -> bool | None:
    operations = description.authorized_operations
    return None if operations is None else AclOperation.READ in operations


def _topic_id(description: TopicDescription) -> str | None:
    """Gives the id as Kafka's own tools print it (base64 for URLs); librdkafka uses the other alphabet."""
    text = str(description.topic_id or ZERO_TOPIC_ID).rstrip("=").replace("+", "-").replace("/", "_")
    return None if text == ZERO_TOPIC_ID else text


def _all_known(answers: Mapping[TopicPartition, OffsetAnswer]) -> dict[TopicPartition, TimedOffset]:
    faults = [f"{partition}: {answer}" for partition, answer in answers.items() if isinstance(answer, str)]
    if faults:
        raise BrokerUnavailable(
            "Kafka did not tell the offsets of all partitions",
            expected="an offset for every partition",
            found="; ".join(faults),
            next_command='run "python -m kafka_ingest plan --dry-run" to see the state of every partition',
        )
    return {partition: answer for partition, answer in answers.items() if isinstance(answer, TimedOffset)}
