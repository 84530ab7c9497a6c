"""Positions copied to a consumer group: the same for groups in memory and for a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from uuid import uuid4

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_ingest.errors import ConfigError
from kafka_ingest.kafka.client import client_config
from kafka_ingest.kafka.log import KafkaGroupMirror
from kafka_ingest.protocol.ports import GroupMirror
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import IsolationLevel
from tests.fakes.group_mirror import FakeGroupMirror

PATIENCE_SECONDS = 60.0


class World:
    """A topic with two partitions and a group that nobody uses."""

    def __init__(self, mirror: GroupMirror, topic: str, stored: Callable[[str], Mapping[TopicPartition, int]]) -> None:
        self.mirror = mirror
        self.group = f"kafka_ingest.orders_{uuid4().hex[:8]}"
        self.first, self.second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        self._stored = stored

    def stored(self) -> Mapping[TopicPartition, int]:
        return self._stored(self.group)


@pytest.fixture(params=["fake", "kafka"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "fake":
        fake = FakeGroupMirror({TopicPartition("orders", 0), TopicPartition("orders", 1)})
        yield World(fake, "orders", lambda group: fake.groups.get(group, {}))
        return
    bootstrap = request.getfixturevalue("kafka_broker").bootstrap
    config = client_config({"bootstrap.servers": bootstrap}, IsolationLevel.READ_COMMITTED, client_id="test")
    topic = request.getfixturevalue("topic")(partitions=2)
    yield World(KafkaGroupMirror(config), topic, lambda group: offsets_of(bootstrap, group, topic))


def offsets_of(bootstrap: str, group: str, topic: str) -> Mapping[TopicPartition, int]:
    """What a consumer of the group would start from in the topic's partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        partitions = consumer.list_topics(topic, PATIENCE_SECONDS).topics[topic].partitions
        answer = consumer.committed([KafkaTopicPartition(topic, number) for number in partitions], PATIENCE_SECONDS)
    finally:
        consumer.close()
    assert [place.error for place in answer] == [None] * len(partitions)
    return {TopicPartition(topic, place.partition): place.offset for place in answer if place.offset >= 0}


def test_a_group_shows_the_offsets_that_were_stored(world: World) -> None:
    world.mirror.store(world.group, {world.first: 7, world.second: 0})
    assert world.stored() == {world.first: 7, world.second: 0}


def test_storing_again_replaces_also_backwards_and_leaves_other_partitions(world: World) -> None:
    world.mirror.store(world.group, {world.first: 7, world.second: 3})
    world.mirror.store(world.group, {world.first: 2})
    world.mirror.store(world.group, {world.first: 2})
    assert world.stored() == {world.first: 2, world.second: 3}


def test_nothing_to_store_makes_no_group(world: World) -> None:
    world.mirror.store(world.group, {})
    assert world.stored() == {}


def test_a_partition_that_does_not_exist_is_refused_and_the_others_are_stored(world: World) -> None:
    with pytest.raises(ConfigError):
        world.mirror.store(world.group, {world.first: 7, TopicPartition(world.first.topic, 9): 1})
    assert world.stored() == {world.first: 7}
