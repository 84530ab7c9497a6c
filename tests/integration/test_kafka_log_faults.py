"""Planner's view of Kafka when something is wrong, and what it must leave alone."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kafka_ingest.errors import BrokerUnavailable, ConfigError
from kafka_ingest.kafka.client import client_config
from kafka_ingest.kafka.log import KafkaLog
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.settings import IsolationLevel, TopicSelection
from sandbox.kafka import KafkaBroker
from tests.builders import offset_range
from tests.certificates import Authority
from tests.deadlines import until
from tests.services import ProducerFactory, TopicFactory

COMMITTED = IsolationLevel.READ_COMMITTED
UNREACHABLE = "127.0.0.1:1"


def config_of(bootstrap: str, **extra: str) -> dict[str, str]:
    settings = {key.replace("_", "."): value for key, value in extra.items()}
    return client_config({"bootstrap.servers": bootstrap, **settings}, COMMITTED, client_id="test")


def test_a_broker_that_does_not_answer_is_unavailable_and_named() -> None:
    with (
        KafkaLog(config_of(UNREACHABLE), timeout_seconds=1) as log,
        pytest.raises(BrokerUnavailable, match=UNREACHABLE) as caught,
    ):
        log.snapshot(TopicSelection(names=("orders",)), COMMITTED)
    assert "Connection refused" in caught.value.found


def test_a_login_that_the_broker_refuses_is_a_fault_of_configuration_in_the_brokers_words(
    kafka_broker: KafkaBroker,
) -> None:
    """librdkafka tells it only as an event; every call just times out."""
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "app"}
    with (
        KafkaLog(config_of(kafka_broker.bootstrap, **login, sasl_password="hunter2"), timeout_seconds=30) as log,
        pytest.raises(ConfigError) as caught,
    ):
        log.identity(["orders"])
    assert "SASL" in caught.value.found
    assert "hunter2" not in str(caught.value)


def test_a_name_that_cannot_be_a_topics_is_a_fault_of_configuration(kafka_broker: KafkaBroker) -> None:
    with (
        KafkaLog(config_of(kafka_broker.bootstrap), timeout_seconds=30) as log,
        pytest.raises(ConfigError, match="not a topic"),
    ):
        log.snapshot(TopicSelection(names=("not a topic",)), COMMITTED)


def test_a_broken_pattern_is_a_fault_of_configuration(kafka_broker: KafkaBroker) -> None:
    with (
        KafkaLog(config_of(kafka_broker.bootstrap), timeout_seconds=30) as log,
        pytest.raises(ConfigError, match=r"orders\("),
    ):
        log.snapshot(TopicSelection(pattern="orders("), COMMITTED)


def test_offsets_of_a_partition_that_does_not_exist_are_never_made_up(
    kafka_broker: KafkaBroker, topic: TopicFactory
) -> None:
    name = topic(partitions=1)
    with (
        KafkaLog(config_of(kafka_broker.bootstrap), timeout_seconds=30) as log,
        pytest.raises(BrokerUnavailable, match=r"\[7\]"),
    ):
        log.offsets_at(1_000, [TopicPartition(name, 0), TopicPartition(name, 7)])


def test_internal_topics_match_no_pattern(
    kafka_broker: KafkaBroker, topic: TopicFactory, producer: ProducerFactory
) -> None:
    name = topic()
    producer(transactional_id="makes-an-internal-topic").init_transactions(30)
    known = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    until(lambda: "__transaction_state" in known.list_topics(timeout=10).topics, "there is an internal topic")
    with KafkaLog(config_of(kafka_broker.bootstrap), timeout_seconds=30) as log:
        selected = set(log.snapshot(TopicSelection(pattern=".*"), COMMITTED).topics)
    assert name in selected
    assert not any(topic.startswith("__") for topic in selected)


def test_asking_creates_no_topic_and_no_group(kafka_broker: KafkaBroker) -> None:
    with KafkaLog(config_of(kafka_broker.bootstrap, group_id="never-joined"), timeout_seconds=30) as log:
        log.snapshot(TopicSelection(names=("never-created",)), COMMITTED)
        log.identity(["never-created"])
        assert log.mean_offset_bytes([range_of("never-created", 10)]) is None
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    assert "never-created" not in admin.list_topics(timeout=10).topics
    groups = admin.list_consumer_groups().result(30)
    assert "never-joined" not in {group.group_id for group in groups.valid}


def test_many_partitions_are_asked_for_at_once(kafka_broker: KafkaBroker, topic: TopicFactory) -> None:
    """200 partitions: three kinds of offset are three requests to the one leader, not six hundred."""
    name = topic(partitions=200)
    with KafkaLog(config_of(kafka_broker.bootstrap), timeout_seconds=30) as log:

        def end_offsets() -> list[int | None]:
            partitions = log.snapshot(TopicSelection(names=(name,)), COMMITTED).topics[name].partitions
            return [state.end_offset for state in partitions.values()]

        # A partition that was just created may have no leader for a moment.
        until(lambda: end_offsets() == [0] * 200, "200 partitions that end at 0")


def test_no_thread_is_left_after_close(kafka_broker: KafkaBroker, topic: TopicFactory) -> None:
    name = topic()
    before = threads()
    for bootstrap in (kafka_broker.bootstrap, UNREACHABLE):
        log = KafkaLog(config_of(bootstrap), timeout_seconds=1)
        if bootstrap != UNREACHABLE:
            log.identity([name])
        log.close()
        log.close()
    until(lambda: threads() <= before, "the clients' threads have ended")


def test_a_connection_that_fails_again_and_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG, logger="kafka_ingest.librdkafka"),
        KafkaLog(config_of("127.0.0.1:2"), timeout_seconds=2) as log,
        pytest.raises(BrokerUnavailable),
    ):
        log.identity(["orders"])
    lines = [record.getMessage() for record in caplog.records if "Connection refused" in record.getMessage()]
    assert len(lines) <= 1


def range_of(topic: str, end: int) -> OffsetRange:
    return replace(offset_range(0, 0, end), topic=topic)


@pytest.mark.parametrize("fault", ["nobody answers", "the login is refused", "nothing comes in time"])
def test_records_that_cannot_be_read_have_no_size_and_are_no_fault(
    kafka_broker: KafkaBroker, topic: TopicFactory, producer: ProducerFactory, fault: str
) -> None:
    """Tasks meet the fault, and name it."""
    name, sender = topic(), producer()
    sender.produce(name, b"x")
    assert sender.flush(30) == 0
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "app"}
    config, seconds = {
        "nobody answers": (config_of(UNREACHABLE), 1.0),
        "the login is refused": (config_of(kafka_broker.bootstrap, **login, sasl_password="hunter2"), 1.0),
        "nothing comes in time": (config_of(kafka_broker.bootstrap), 0.0),
    }[fault]
    with KafkaLog(config, sample_seconds=seconds) as log:
        assert log.mean_offset_bytes([range_of(name, 1)]) is None


def test_a_client_that_cannot_be_made_gives_no_size_and_is_no_fault(tmp_path: Path) -> None:
    """A secret that is mounted anew is away for a moment."""
    authority = Authority(tmp_path, "ca").location
    config = config_of(UNREACHABLE, security_protocol="ssl", ssl_ca_location=str(authority))
    with KafkaLog(config) as log:
        authority.unlink()
        assert log.mean_offset_bytes([range_of("orders", 1)]) is None


def test_a_sample_ends_after_a_hundred_records_of_a_range(
    kafka_broker: KafkaBroker, topic: TopicFactory, producer: ProducerFactory
) -> None:
    name, sender = topic(), producer()
    for number in range(1_000):
        sender.produce(name, b"x" * (10 if number < 100 else 1_000))
    assert sender.flush(30) == 0
    with KafkaLog(config_of(kafka_broker.bootstrap), sample_seconds=30) as log:
        assert log.mean_offset_bytes([range_of(name, 1_000)]) == 10


def test_a_key_counts_beside_its_value(
    kafka_broker: KafkaBroker, topic: TopicFactory, producer: ProducerFactory
) -> None:
    name, sender = topic(), producer()
    sender.produce(name, b"x" * 100, key=b"k" * 50)
    sender.produce(name, None, key=b"k" * 50)
    assert sender.flush(30) == 0
    with KafkaLog(config_of(kafka_broker.bootstrap), sample_seconds=30) as log:
        assert log.mean_offset_bytes([range_of(name, 2)]) == 100


def test_a_sample_ends_after_two_megabytes_of_a_range(
    kafka_broker: KafkaBroker, topic: TopicFactory, producer: ProducerFactory
) -> None:
    name, sender = topic(), producer()
    for number in range(20):
        sender.produce(name, b"x" * (900_000 if number < 3 else 10))
    assert sender.flush(30) == 0
    with KafkaLog(config_of(kafka_broker.bootstrap), sample_seconds=30) as log:
        assert log.mean_offset_bytes([range_of(name, 20)]) == 900_000


def test_a_sample_reads_what_the_isolation_level_of_the_pipeline_lets_it_read(
    kafka_broker: KafkaBroker, topic: TopicFactory, producer: ProducerFactory
) -> None:
    """Three aborted records and their marker."""
    name = topic()
    sender = producer(transactional_id=f"{name}-t")
    sender.init_transactions(30)
    sender.begin_transaction()
    for _ in range(3):
        sender.produce(name, b"x" * 1_000)
    assert sender.flush(30) == 0
    sender.abort_transaction(30)
    bootstrap = {"bootstrap.servers": kafka_broker.bootstrap}

    def size(level: IsolationLevel) -> int | None:
        with KafkaLog(client_config(bootstrap, level, client_id="test"), sample_seconds=30) as log:
            return log.mean_offset_bytes([range_of(name, 4)])

    # The broker answers before it has written the marker.
    until(lambda: size(COMMITTED) == 0, "the marker is in the log")
    assert size(IsolationLevel.READ_UNCOMMITTED) == 750


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))
