"""The copy of the position in a real consumer group, and failures to copy."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from confluent_kafka import Consumer

from kafka_ingest.errors import ConfigError
from kafka_ingest.kafka.client import client_config
from kafka_ingest.kafka.log import KafkaGroupMirror
from kafka_ingest.protocol.audit import group_of, mirror_group
from kafka_ingest.protocol.ports import GroupMirror
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import IsolationLevel
from sandbox.kafka import KafkaBroker
from tests.builders import pipeline_settings, position, view_of
from tests.contracts.test_group_mirror_contract import offsets_of
from tests.deadlines import until
from tests.services import TopicFactory

SETTINGS = pipeline_settings()
MIRRORED = replace(SETTINGS, watch=replace(SETTINGS.watch, mirror_group=True))


def mirror_at(bootstrap: str, timeout_seconds: float = 30) -> GroupMirror:
    config = client_config({"bootstrap.servers": bootstrap}, IsolationLevel.READ_COMMITTED, client_id="test")
    return KafkaGroupMirror(config, timeout_seconds=timeout_seconds)


def test_lag_tools_see_the_committed_offsets_under_the_pipeline_s_name(
    kafka_broker: KafkaBroker, topic: TopicFactory
) -> None:
    name = topic(2)
    settings = replace(MIRRORED, pipeline=name)
    view = view_of(position(0, 7, topic=name), position(1, 0, topic=name))
    assert mirror_group(settings, lambda: view, lambda: mirror_at(kafka_broker.bootstrap))
    stored = offsets_of(kafka_broker.bootstrap, group_of(name), name)
    assert {where.partition: offset for where, offset in stored.items()} == {0: 7, 1: 0}


def test_settings_that_make_no_client_are_a_fault_of_the_connection() -> None:
    config = client_config({"bootstrap.servers": "127.0.0.1:1"}, IsolationLevel.READ_COMMITTED, client_id="test")
    with pytest.raises(ConfigError, match="preflight PIPELINE"):
        KafkaGroupMirror({**config, "ssl.ca.location": "/nowhere", "security.protocol": "SSL"}).store(
            "group", {TopicPartition("orders", 0): 1}
        )


def test_a_group_with_a_member_is_left_to_it_with_a_warning(
    kafka_broker: KafkaBroker, topic: TopicFactory, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    consumer = Consumer({"bootstrap.servers": kafka_broker.bootstrap, "group.id": group_of(name)})
    try:
        consumer.subscribe([name])
        until(lambda: consumer.poll(0.1) is not None or consumer.assignment(), "a member of the group")
        with caplog.at_level(logging.WARNING):
            copied = mirror_group(
                replace(MIRRORED, pipeline=name),
                lambda: view_of(position(0, 7, topic=name)),
                lambda: mirror_at(kafka_broker.bootstrap),
            )
    finally:
        consumer.close()
    assert not copied
    [warning] = [record.getMessage() for record in caplog.records if record.name.endswith("audit")]
    assert f"Kafka did not store 1 of 1 offsets of the consumer group kafka_ingest.{name}" in warning
    assert "mirror_group: false" in warning
    assert offsets_of(kafka_broker.bootstrap, group_of(name), name) == {}


def test_a_broker_that_is_away_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert not mirror_group(MIRRORED, lambda: view_of(position(0, 7)), lambda: mirror_at("127.0.0.1:1", 0.5))
    assert "BrokerUnavailable" in caplog.text
