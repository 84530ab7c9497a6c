"""Reading a topic with one librdkafka consumer, as every peer that is written in Python does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.benchmarks.load import Load
from tests.benchmarks.peers.contender import ContenderError

_TIMEOUT_SECONDS = 30.0


def new_consumer(load: Load, group: str) -> Consumer:
    """Return a consumer with librdkafka's defaults that commits only when told."""
    return Consumer(
        {
            "bootstrap.servers": load.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def bounds(consumer: Consumer, load: Load) -> dict[int, tuple[int, int]]:
    """Return the first and the end offset of every partition that holds records."""
    partitions = consumer.list_topics(load.topic, _TIMEOUT_SECONDS).topics[load.topic].partitions
    marks = {p: consumer.get_watermark_offsets(TopicPartition(load.topic, p), _TIMEOUT_SECONDS) for p in partitions}
    return {partition: (low, high) for partition, (low, high) in marks.items() if low < high}


def assign(consumer: Consumer, load: Load, partitions: Mapping[int, tuple[int, int]]) -> None:
    """Lets the consumer begin at the first offsets."""
    consumer.assign([TopicPartition(load.topic, partition, low) for partition, (low, _) in partitions.items()])


def chunks(consumer: Consumer, partitions: Mapping[int, tuple[int, int]], size: int) -> Iterator[list[Message]]:
    """Return messages in lists of ``size``, the last one shorter, until every partition's end is reached.

    Offsets without a record (markers of transactions, compaction) are not expected: the benchmark's topics have none.

    Raises:
        ContenderError: Nothing came for 30 seconds.
        KafkaException: Kafka reported an error.
    """
    left = sum(high - low for low, high in partitions.values())
    while left:
        messages = _exactly(consumer, min(size, left))
        left -= len(messages)
        yield messages


def _exactly(consumer: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        more = consumer.consume(count - len(messages), timeout=_TIMEOUT_SECONDS)
        if not more:
            raise ContenderError(f"no message for {_TIMEOUT_SECONDS:.0f} s, expected {count - len(messages)} more")
        messages += _checked(more)
    return messages


def next_offsets(messages: list[Message]) -> dict[int, int]:
    """Return the offset after the last message of every partition."""
    return {message.partition(): message.offset() + 1 for message in messages}


def metadata(message: Message) -> tuple[Any, ...]:
    """Return the values of ``kafka_topic``, ``kafka_partition``, ``kafka_offset`` and ``kafka_timestamp``."""
    time = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    return message.topic(), message.partition(), message.offset(), time


def _checked(messages: list[Message]) -> list[Message]:
    for message in messages:
        if message.error() is not None:
            raise KafkaException(message.error())
    return messages
