"""librdkafka's messages for tests, made without a broker."""

from __future__ import annotations

from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, Message

TOPIC = "orders"


def record(offset: int, value: bytes | None = b"v", **parts: Any) -> Message:
    return Message(
        **{
            "topic": TOPIC,
            "partition": 0,
            "timestamp": (TIMESTAMP_CREATE_TIME, 1_000 + offset),
            "leader_epoch": 3,
            **parts,
            "offset": offset,
            "value": value,
        }
    )


def event(code: int, offset: int = -1001, topic: str | None = TOPIC, partition: int = 0) -> Message:
    return Message(topic=topic, partition=partition, offset=offset, error=KafkaError(code))


def end_of_partition(offset: int, topic: str = TOPIC, partition: int = 0) -> Message:
    return event(KafkaError._PARTITION_EOF, offset, topic, partition)
