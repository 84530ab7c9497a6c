"""A topic for a sink that cannot write nested values: the same records, with these members as JSON text."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.benchmarks.load import Load
from tests.benchmarks.peers.contender import ContenderError
from tests.benchmarks.peers.topic import assign, bounds, chunks, new_consumer
from tests.benchmarks.workloads import WORKLOADS

_TIMEOUT_SECONDS = 60.0
_CHUNK = 10_000
_PRODUCER = {"compression.type": "lz4", "linger.ms": 50, "queue.buffering.max.messages": 100_000}
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def topic_of_sink(load: Load) -> str:
    """Return the topic that a sink without nested values reads: the load's, if its table has no jsonb column."""
    return f"{load.topic}-flat" if _nested(load) else load.topic


def write_flat_topic(load: Load, _params: dict[str, Any]) -> None:
    """Writes that topic unless it holds all records: the same partitions, offsets and times.

    Raises:
        ContenderError: The topic holds something else, or the broker did not take the records.
    """
    topic = topic_of_sink(load)
    if topic == load.topic or _made_before(load, topic):
        return
    producer = Producer({"bootstrap.servers": load.bootstrap, **_PRODUCER})
    names = _nested(load)
    with closing(new_consumer(load, "bench-flat-topic")) as consumer:
        partitions = bounds(consumer, load)
        assign(consumer, load, partitions)
        for messages in chunks(consumer, partitions, _CHUNK):
            for message in messages:
                producer.produce(
                    topic,
                    flattened(message.value(), names),
                    partition=message.partition(),
                    timestamp=message.timestamp()[1],
                )
            if producer.flush(_TIMEOUT_SECONDS):
                raise ContenderError(f"records were not delivered to {topic}")


def flattened(value: bytes, names: list[str]) -> bytes:
    """Return the JSON object with these members as the text of their values."""
    record: dict[str, Any] = _decode(value)
    for name in names:
        record[name] = str(record[name], "utf-8")
    return msgspec.json.encode(record)


def _nested(load: Load) -> list[str]:
    return [name for name, kind in WORKLOADS[load.workload].columns.items() if kind == "jsonb"]


def _made_before(load: Load, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": load.bootstrap})
    if topic not in admin.list_topics(timeout=_TIMEOUT_SECONDS).topics:
        admin.create_topics([NewTopic(topic, load.partitions, 1)])[topic].result(_TIMEOUT_SECONDS)
        return False
    with closing(new_consumer(load, "bench-flat-topic")) as consumer:
        found = sum(high for _, high in bounds(consumer, replace(load, topic=topic)).values())
    if found != load.records:
        raise ContenderError(f"{topic} holds {found} records, expected {load.records}: delete it")
    return True
