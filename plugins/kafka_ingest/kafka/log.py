"""The log as plans and loads see it: topics, offsets, consumer groups, how large records are."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection
from confluent_kafka import IsolationLevel as KafkaIsolation
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ConfigResource,
    DescribeClusterResult,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from kafka_ingest.errors import BrokerUnavailable, ConfigError, IngestError
from kafka_ingest.kafka import client
from kafka_ingest.protocol.log import LogIdentity, LogSnapshot, PartitionState, TimedOffset, TopicState
from kafka_ingest.protocol.log_faults import grant, grant_read
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.settings import IsolationLevel, TopicSelection
from kafka_ingest.topic_patterns import matching_topics

# ----------
# Questions to Kafka's admin API with one deadline; answers per topic and partition instead of exceptions.

#: A new topic is unknown to some brokers for a moment: 0.2 s were seen on one broker, so ask for ten times as long.
NEW_TOPIC_GRACE_SECONDS = 2.0

_ADMIN_POLL_SECONDS = 0.1

#: Which offset of a partition is asked for.
OffsetKind = tuple[OffsetSpec, KafkaIsolation]

#: What Kafka said about one partition: an offset, or the broker's words.
OffsetAnswer = TimedOffset | str

#: What Kafka said about one topic's settings: value by name, or the broker's words.
ConfigAnswer = Mapping[str, str] | str


class KafkaAdmin:
    """One admin client. Every method asks in one batch and answers within ``timeout_seconds`` or raises.

    Raises (every method):
        BrokerUnavailable: No answer in time.
        ConfigError: The broker refuses this client.
    """

    def __init__(self, config: Mapping[str, str], *, timeout_seconds: float) -> None:
        self._events = client.ClientEvents(config)
        self._connection = config.get(client.CONNECTION, "")
        self._timeout_seconds = timeout_seconds
        known = {
            key: value for key, value in config.items() if key not in client.CONSUMER_ONLY and key != client.CONNECTION
        }
        self._tells_rights = True
        try:
            self._client: AdminClient | None = AdminClient(
                {**known, "error_cb": self._events}, logger=client.LIBRDKAFKA_LOG
            )
        except KafkaException as error:
            raise client.client_fault(error, config) from None

    def close(self) -> None:
        """End the client's threads; idempotent."""
        self._client = None

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        return str(self.cluster().cluster_id)

    def cluster(self) -> DescribeClusterResult:
        """Describe the cluster: its id, its brokers (``nodes``) and the controller."""
        future = self._open().describe_cluster(request_timeout=self._timeout_seconds)
        (answer,) = self._answers({"": future}, "describing the cluster").values()
        if isinstance(answer, KafkaError):
            raise self._unavailable("describing the cluster", answer)
        return answer

    def topic_names(self) -> list[str]:
        """Return the names of all topics that this client may see, sorted."""
        self.cluster_id()  # here a refused login shows as an event; in list_topics it does not show at all
        try:
            return sorted(self._open().list_topics(timeout=self._timeout_seconds).topics)
        except KafkaException as error:
            raise self._unavailable("listing topics", error.args[0]) from error

    def describe(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        """Describe topics; one that does not exist is missing from the answer. Creates nothing.

        Raises:
            ConfigError: This client may not see one of them, or a name cannot be a topic's name.
        """
        wanted = sorted(set(topics))
        found: dict[str, TopicDescription] = {}
        grace = time.monotonic() + min(NEW_TOPIC_GRACE_SECONDS, self._timeout_seconds)
        while missing := [topic for topic in wanted if topic not in found]:
            answers = self._described(missing)
            found |= {topic: answer for topic, answer in answers.items() if isinstance(answer, TopicDescription)}
            if time.monotonic() > grace:
                _require_absence({topic: answers[topic] for topic in missing if topic not in found}, self._unavailable)
                break
            if len(found) < len(wanted):
                time.sleep(_ADMIN_POLL_SECONDS)
        return found

    def _described(self, topics: list[str]) -> dict[str, Any]:
        futures = self._open().describe_topics(
            TopicCollection(topics),
            include_authorized_operations=self._tells_rights,
            request_timeout=self._timeout_seconds,
        )
        answers = self._answers(futures, "describing topics")
        if self._tells_rights and any(_is_unsupported(answer) for answer in answers.values()):
            self._tells_rights = False  # a broker before 2.3 (KIP-430): its topics are described all the same
            return self._described(topics)
        _refuse_forbidden(answers, self._connection)
        return answers

    def offsets(self, partitions: Iterable[TopicPartition], *kinds: OffsetKind) -> list[list[OffsetAnswer]]:
        """Ask for offsets of every partition: one request to each leader for each kind, all of them at the same time.

        A leader answers them in the order of ``kinds``: they go over one connection, and it handles the requests of a
        connection one after another (Kafka protocol guide, section Network).

        Returns:
            For each kind, in the order of ``partitions``: the offset (-1 when no record is that late) with its record
            time (where it was asked for by time), or the broker's words for that partition.
        """
        asked = [KafkaTopicPartition(item.topic, item.partition) for item in partitions]
        if not asked:
            return [[] for _ in kinds]
        requests = [
            self._open().list_offsets(
                dict.fromkeys(asked, spec), isolation_level=isolation, request_timeout=self._timeout_seconds
            )
            for spec, isolation in kinds
        ]
        found = [self._answers(futures, "listing offsets") for futures in requests]
        return [[_offset_answer(answers[key]) for key in asked] for answers in found]

    def describe_configs(self, topics: Iterable[str]) -> dict[str, ConfigAnswer]:
        """Ask for the settings of topics, such as ``cleanup.policy``: values as they apply, as text.

        The answer is a mapping of settings, or the broker's words for that topic: one that does not exist, or whose
        settings this client may not read (``DESCRIBE_CONFIGS``).
        """
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(set(topics))]
        if not asked:
            return {}
        futures = self._open().describe_configs(asked, request_timeout=self._timeout_seconds)
        answers = self._answers(futures, "reading settings")
        return {resource.name: _config_answer(answer) for resource, answer in answers.items()}

    def _answers(self, futures: Mapping[Any, Future[Any]], tried: str) -> dict[Any, Any]:
        """Wait for all futures while serving events; an answer is a result or a ``KafkaError``."""
        deadline = time.monotonic() + self._timeout_seconds + _ADMIN_POLL_SECONDS
        # One after another: the futures of a request are answered together, and watching thousands at once costs more.
        answers = {key: self._answer(future, deadline, tried) for key, future in futures.items()}
        if all(isinstance(answer, KafkaError) and answer.code() in _NO_ANSWER for answer in answers.values()):
            self._open().poll(0)
            raise self._unavailable(tried, next(iter(answers.values())))
        self._events.forget()
        return answers

    def _answer(self, future: Future[Any], deadline: float, tried: str) -> Any:
        while True:
            try:
                return future.result(_ADMIN_POLL_SECONDS)
            except KafkaException as error:
                return error.args[0]
            except TimeoutError:
                self._open().poll(0)
                if self._events.refused_for_good or time.monotonic() > deadline:
                    raise self._unavailable(tried) from None

    def _unavailable(self, tried: str, error: KafkaError | None = None) -> Exception:
        if error is not None and not self._events.output_tail:
            self._events(error)
        return self._events.unavailable(tried=tried, seconds=self._timeout_seconds)

    def _open(self) -> AdminClient:
        if self._client is None:
            raise ValueError("the Kafka client is closed")
        return self._client


#: Codes of a request that no broker has answered.
_NO_ANSWER = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
    }
)


def _offset_answer(answer: Any) -> OffsetAnswer:
    if isinstance(answer, KafkaError):
        return str(answer.str())
    return TimedOffset(answer.offset, answer.timestamp if answer.timestamp >= 0 else None)


def _config_answer(answer: Any) -> ConfigAnswer:
    if isinstance(answer, KafkaError):
        return str(answer.str())
    return {name: str(entry.value) for name, entry in answer.items() if entry.value is not None}


def _is_unsupported(answer: Any) -> bool:
    return isinstance(answer, KafkaError) and answer.code() == KafkaError._UNSUPPORTED_FEATURE


def _refuse_forbidden(answers: Mapping[str, Any], connection: str) -> None:
    errors = {topic: answer for topic, answer in answers.items() if isinstance(answer, KafkaError)}
    forbidden = [name for name, error in errors.items() if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED]
    misnamed = [name for name, error in errors.items() if error.code() == KafkaError.TOPIC_EXCEPTION]
    if forbidden or misnamed:
        grants = [grant_read(topic, connection) for topic in forbidden]
        raise ConfigError(
            "Kafka does not let this client see all topics of the pipeline",
            expected="valid topic names, and the right READ, which lets a client describe them, too",
            found="; ".join(f"{topic}: {errors[topic].str()}" for topic in (*forbidden, *misnamed)),
            next_command="; or: ".join(["correct kafka.topics in the pipeline file", *grants]),
        )


def _require_absence(answers: Mapping[str, Any], unavailable: Callable[[str, KafkaError], Exception]) -> None:
    """Require that each error says that the topic does not exist; any other error is not a missing topic."""
    for topic, answer in answers.items():
        if answer.code() not in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:
            raise unavailable(f"describing topic {topic}", answer)


# ----------
# Copies of positions in a Kafka consumer group: port ``GroupMirror`` on a real cluster.
#
# A consumer commits them; it never subscribes and so joins no group. The admin client has a request of its own
# for this (``alter_consumer_group_offsets``), but its process may die of a segmentation fault when the request fails or
# times out: confluent-kafka-python issues 1982 and 1640, librdkafka issue 4605; seen here with 2.15 and a broker just
# started.

#: A message names this many refused partitions; one cause usually refuses all.
_NAMED = 5

#: Longest wait for the group's coordinator. The first group of a cluster takes some seconds to create.
_TIMEOUT_SECONDS = 15.0

#: The group's coordinator did not answer, or no broker is the coordinator at the moment.
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
    """The port ``GroupMirror``: sets a group's offsets from outside the group.

    Args:
        config: librdkafka configuration from :func:`kafka_ingest.kafka.client.client_config`.
        timeout_seconds: Longest wait for the group's coordinator. Short: a run waits for it after its work is done.
    """

    def __init__(self, config: Mapping[str, str], *, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        self._config = config
        self._timeout_seconds = timeout_seconds

    def store(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the group's offsets; see the port. One request to the coordinator for any number of partitions."""
        if not offsets:
            return
        refused = self._refused(group, offsets)
        if refused:
            named = [f"{where}: {words}" for where, words in sorted(refused.items())]
            raise ConfigError(
                f"Kafka did not store {len(refused)} of {len(offsets)} offsets of the consumer group {group}",
                expected="a group without members, and the right READ on the group and its topics",
                found="; ".join(named[:_NAMED]),
                next_command="stop consumers that use this group, or set mirror_group: false, or: "
                + grant("Read", f"--group {group}", self._config.get(client.CONNECTION, "")),
            )

    def _refused(self, group: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """Store offsets; return the broker's words for each partition that it refused."""
        events = client.ClientEvents(self._config)
        wanted = [KafkaTopicPartition(item.topic, item.partition, offset) for item, offset in offsets.items()]
        settings = {**client.librdkafka_settings(self._config), **self._own_settings(group), "error_cb": events}
        try:
            consumer = Consumer(settings, logger=client.LIBRDKAFKA_LOG)
        except KafkaException as error:
            raise client.client_fault(error, self._config) from None
        try:
            answer = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            if (forbidden := _forbidden_group(consumer)) is not None:
                return dict.fromkeys(offsets, forbidden)
            if error.args[0].code() in _NO_COORDINATOR | client.REFUSALS:
                raise self._unavailable(group, events, error.args[0]) from error
            return dict.fromkeys(offsets, error.args[0].str())
        finally:
            consumer.close()
        return {TopicPartition(p.topic, p.partition): p.error.str() for p in answer if p.error is not None}

    def _own_settings(self, group: str) -> Mapping[str, object]:
        session_ms = max(3, round(1000 * self._timeout_seconds))
        # librdkafka waits for a coordinator as long as a session lasts (rd_kafka_cgrp_defer_offset_commit, 2.16).
        return {
            "group.id": group,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": session_ms // 3,
        }

    def _unavailable(self, group: str, events: client.ClientEvents, error: KafkaError) -> IngestError:
        if not events.output_tail or error.code() in client.REFUSALS:
            events(error)
        return events.unavailable(tried=f"storing offsets of group {group}", seconds=self._timeout_seconds)


def _forbidden_group(consumer: Consumer) -> str | None:
    """Return the broker's words where the group may not be written: the call itself only waits for a coordinator."""
    while message := consumer.poll(0):
        error = message.error()
        if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return str(error.str())
    return None


# ----------
# How large records are: some of them, from the starts of the largest ranges. Tasks are cut by it, so an estimate is
# enough, and none is no fault: what keeps records from being read is met, and named, by the tasks.

_LOG = logging.getLogger(__name__)

#: The sample ends after this long, connection included: a load takes four times as long to start.
SAMPLE_SECONDS = 1.0
_SAMPLED_RANGES = 4
#: Of one range. Records of a producer are mostly alike; two of 1 MB say that records are large.
_SAMPLED_RECORDS, _SAMPLED_BYTES = 100, 2_000_000
#: Little is asked for at once and fetched ahead; a record batch that is larger comes whole all the same (KIP-74).
_SAMPLE_SETTINGS = {"fetch.message.max.bytes": "65536", "queued.max.messages.kbytes": "1024"}


class _Sampled:
    """What was read from the start of a range: records, their bytes, and one past the last offset that was passed."""

    def __init__(self, wanted: OffsetRange) -> None:
        self._wanted = wanted
        self._reached, self._records, self._size_bytes = wanted.start, 0, 0

    def take(self, message: Message) -> bool:
        """Take a record or an event of the partition; tell whether that is enough, or nothing more comes."""
        error, end = message.error(), self._wanted.end
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._reached = max(self._reached, min(message.offset(), end))
            return True
        if message.offset() < end:
            self._records += 1
            self._size_bytes += len(message.key() or b"") + len(message.value() or b"")
        self._reached = min(message.offset() + 1, end)
        return self._reached == end or self._records >= _SAMPLED_RECORDS or self._size_bytes >= _SAMPLED_BYTES

    def estimate(self) -> tuple[int, float] | None:
        """Return the offsets of the range, and the bytes that they hold if all are like those that were passed."""
        passed, span = self._reached - self._wanted.start, self._wanted.span_offsets
        return (span, self._size_bytes / passed * span) if passed else None


def _sampled(config: Mapping[str, str], ranges: Sequence[OffsetRange], seconds: float) -> Iterable[_Sampled]:
    deadline = time.monotonic() + seconds
    found = {(r.topic, r.partition): _Sampled(r) for r in ranges}
    pending = dict(found)
    settings = {**client.librdkafka_settings(config), **_SAMPLE_SETTINGS, "error_cb": lambda _: None}
    with closing(Consumer(settings, logger=client.LIBRDKAFKA_LOG)) as consumer:
        consumer.assign([KafkaTopicPartition(r.topic, r.partition, r.start) for r in ranges])
        while pending and (left := deadline - time.monotonic()) > 0:
            if (first := consumer.poll(left)) is None:
                continue
            for message in (first, *consumer.consume(_SAMPLED_RECORDS, 0)):
                place = message.topic(), message.partition()
                if place in pending and pending[place].take(message):
                    del pending[place]
                    consumer.pause([KafkaTopicPartition(*place)])
    return found.values()


# ----------
# Kafka as planning, cutting and publishing see it: ids, partitions, leaders, offsets and sizes.

#: The topic id from a broker without topic ids (before Kafka 2.8, KIP-516): sixteen zero bytes in base64.
ZERO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"

#: An election takes milliseconds to a few seconds; a partition without a leader for longer is faulty.
ELECTION_GRACE_SECONDS = 5.0

_POLL_SECONDS = 0.2

_LOG_START: OffsetKind = (OffsetSpec.earliest(), KafkaIsolation.READ_UNCOMMITTED)
_LAST_STABLE: OffsetKind = (OffsetSpec.latest(), KafkaIsolation.READ_COMMITTED)
_HIGH_WATERMARK: OffsetKind = (OffsetSpec.latest(), KafkaIsolation.READ_UNCOMMITTED)


class KafkaLog:
    """The port ``Log`` on a real cluster.

    The number of requests does not grow with the number of partitions: each leader gets one request for each kind of
    offset, all at the same time. It joins no group, and opens a consumer only to look at the size of records. Not safe
    for several threads.

    Args:
        config: librdkafka configuration from :func:`kafka_ingest.kafka.client.client_config`.
        timeout_seconds: Longest wait for one answer.
        sample_seconds: Longest time to look at the size of records.
    """

    def __init__(
        self, config: Mapping[str, str], *, timeout_seconds: float = 30, sample_seconds: float = SAMPLE_SECONDS
    ) -> None:
        self._config = config
        self._sample_seconds = sample_seconds
        self._admin = KafkaAdmin(config, timeout_seconds=timeout_seconds)

    def __enter__(self) -> KafkaLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave Kafka and end the client's threads; idempotent."""
        self._admin.close()

    def snapshot(self, topics: TopicSelection, isolation_level: IsolationLevel) -> LogSnapshot:
        """Describe the selected topics; see the port. Waits a few seconds for an election that is under way."""
        grace = time.monotonic() + ELECTION_GRACE_SECONDS
        while True:
            taken_at = datetime.now(UTC)
            cluster_id = self._admin.cluster_id()
            states = self._states(self._select(topics), isolation_level)
            if time.monotonic() > grace or not any(_is_faulty(state) for state in states.values()):
                return LogSnapshot(cluster_id, states, taken_at)
            time.sleep(_POLL_SECONDS)

    def offsets_at(self, time_ms: int, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, TimedOffset]:
        """Return the first offset at or after a time; see the port.

        A time before 1970 gives the log start: in the protocol negative times are names of offsets (-1 is "latest").
        """
        wanted = list(partitions)
        spec = OffsetSpec.for_timestamp(time_ms) if time_ms >= 0 else OffsetSpec.earliest()
        found = self._known_offsets(wanted, (spec, KafkaIsolation.READ_UNCOMMITTED))
        too_late = [partition for partition, timed in found.items() if timed.offset < 0]
        return {**found, **self._known_offsets(too_late, _HIGH_WATERMARK)}

    def identity(self, topics: Iterable[str]) -> LogIdentity:
        """Read cluster id and topic ids again; see the port."""
        cluster_id = self._admin.cluster_id()
        described = self._admin.describe(topics)
        return LogIdentity(cluster_id, {topic: _topic_id(found) for topic, found in described.items()})

    def cleanup_policies(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Return ``cleanup.policy`` of topics as it applies; a topic whose settings cannot be read is missing."""
        answers = self._admin.describe_configs(topics)
        return {topic: found["cleanup.policy"] for topic, found in answers.items() if not isinstance(found, str)}

    def delete_retentions(self, topics: Iterable[str]) -> Mapping[str, int | None]:
        """Return ``delete.retention.ms`` of compacted topics, ``None`` for others; see the port."""
        answers = self._admin.describe_configs(topics)
        return {
            topic: int(found["delete.retention.ms"]) if "compact" in found["cleanup.policy"] else None
            for topic, found in answers.items()
            if not isinstance(found, str)
        }

    def mean_offset_bytes(self, ranges: Sequence[OffsetRange]) -> int | None:
        """Sample the largest ranges at their starts; see the port. Four of them, 100 records or 2 MB of each."""
        largest = sorted(ranges, key=lambda r: -r.span_offsets)[:_SAMPLED_RANGES]
        try:
            sampled = _sampled(self._config, largest, self._sample_seconds)
        except KafkaException as error:
            _LOG.info("Kafka's client gives no sample of records: %s", error.args[0])
            return None
        estimates = [found for one in sampled if (found := one.estimate())]
        if not estimates:
            _LOG.info("no record came within %g s to tell how large records are", self._sample_seconds)
            return None
        return round(sum(size for _, size in estimates) / sum(span for span, _ in estimates))

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
        """Return log start, end and high watermark, asked for in this order so that start <= end <= HW."""
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
    """Put the answers for one partition together; the first fault among them makes all offsets unknown."""
    if isinstance(start, TimedOffset) and isinstance(end, TimedOffset) and isinstance(high, TimedOffset):
        return PartitionState(partition, True, start.offset, high.offset, end.offset)
    fault = next(answer for answer in (start, end, high) if isinstance(answer, str))
    return PartitionState(partition, has_leader=True, fault=fault)


def _is_faulty(state: TopicState) -> bool:
    return any(partition.end_offset is None for partition in state.partitions.values())


def _has_leader(leader: object) -> bool:
    """Tell whether there is a leader: a missing one is no node, or a node with a negative id."""
    return leader is not None and int(getattr(leader, "id", -1)) >= 0


def _may_read(description: TopicDescription) -> bool | None:
    operations = description.authorized_operations
    return None if operations is None else AclOperation.READ in operations


def _topic_id(description: TopicDescription) -> str | None:
    """Return the id as Kafka's own tools print it (base64 for URLs); librdkafka uses the other alphabet."""
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
