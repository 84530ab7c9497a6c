"""Questions to Kafka's admin API with one deadline, and answers per topic and partition instead of exceptions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel as KafkaIsolation
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    DescribeClusterResult,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from kafka_ingest.adapters.kafka_config import CONSUMER_ONLY
from kafka_ingest.adapters.kafka_faults import CONNECTION, LIBRDKAFKA_LOG, ClientEvents, client_fault
from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.log_state import TimedOffset
from kafka_ingest.core.offsets import TopicPartition

#: A new topic is unknown to some brokers for a moment: 0.2 s were seen on one broker, so ask for ten times as long.
NEW_TOPIC_GRACE_SECONDS = 2.0

_POLL_SECONDS = 0.1

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
        self._events = ClientEvents(config)
        self._timeout_seconds = timeout_seconds
        known = {key: value for key, value in config.items() if key not in CONSUMER_ONLY and key != CONNECTION}
        self._tells_rights = True
        try:
            self._client: AdminClient | None = AdminClient({**known, "error_cb": self._events}, logger=LIBRDKAFKA_LOG)
        except KafkaException as error:
            raise client_fault(error, config) from None

    def close(self) -> None:
        """Ends the client's threads; idempotent."""
        self._client = None

    def cluster_id(self) -> str:
        """Gives the cluster's id."""
        return str(self.cluster().cluster_id)

    def cluster(self) -> DescribeClusterResult:
        """Describes the cluster: its id, its brokers (``nodes``) and the controller."""
        future = self._open().describe_cluster(request_timeout=self._timeout_seconds)
        (answer,) = self._answers({"": future}, "describing the cluster").values()
        if isinstance(answer, KafkaError):
            raise self._unavailable("describing the cluster", answer)
        return answer

    def topic_names(self) -> list[str]:
        """Gives the names of all topics that this client may see, sorted."""
        self.cluster_id()  # a refused login shows as an event here, and not at all in list_topics
        try:
            return sorted(self._open().list_topics(timeout=self._timeout_seconds).topics)
        except KafkaException as error:
            raise self._unavailable("listing topics", error.args[0]) from error

    def describe(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        """Describes topics; one that does not exist is missing from the answer. Creates nothing.

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
                time.sleep(_POLL_SECONDS)
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
        _refuse_forbidden(answers)
        return answers

    def offsets(self, partitions: Iterable[TopicPartition], *kinds: OffsetKind) -> list[list[OffsetAnswer]]:
        """Asks for offsets of every partition: one request a kind to each leader, all of them under way together.

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
        """Asks for the settings of topics, such as ``cleanup.policy``: values as they apply, as text.

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
        """Waits for all futures while serving events; an answer is a result or a ``KafkaError``."""
        deadline = time.monotonic() + self._timeout_seconds + _POLL_SECONDS
        # One after another: the futures of a request are answered together, and to watch each of thousands costs more.
        answers = {key: self._answer(future, deadline, tried) for key, future in futures.items()}
        if all(isinstance(answer, KafkaError) and answer.code() in _NO_ANSWER for answer in answers.values()):
            self._open().poll(0)
            raise self._unavailable(tried, next(iter(answers.values())))
        return answers

    def _answer(self, future: Future[Any], deadline: float, tried: str) -> Any:
        while True:
            try:
                return future.result(_POLL_SECONDS)
            except KafkaException as error:
                return error.args[0]
            except TimeoutError:
                self._open().poll(0)
                if self._events.refused_for_good or time.monotonic() > deadline:
                    raise self._unavailable(tried) from None

    def _unavailable(self, tried: str, error: KafkaError | None = None) -> Exception:
        if error is not None and not self._events.last_words:
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


def _refuse_forbidden(answers: Mapping[str, Any]) -> None:
    wrong = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION}
    faults = [
        f"{topic}: {answer.str()}"
        for topic, answer in answers.items()
        if isinstance(answer, KafkaError) and answer.code() in wrong
    ]
    if faults:
        raise ConfigError(
            "Kafka does not let this client see all topics of the pipeline",
            expected="valid topic names, and the right READ, which lets a client describe them, too",
            found="; ".join(faults),
            next_command="correct kafka.topics in the pipeline file, or: kafka-acls.sh --bootstrap-server BROKER --add "
            "--allow-principal User:NAME --operation Read --topic TOPIC, NAME being the connection's user",
        )


def _require_absence(answers: Mapping[str, Any], unavailable: Callable[[str, KafkaError], Exception]) -> None:
    """Lets pass only topics that Kafka says do not exist; any other error is not a missing topic."""
    for topic, answer in answers.items():
        if answer.code() not in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:
            raise unavailable(f"describing topic {topic}", answer)
