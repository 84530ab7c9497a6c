"""A topic with everything that a reader has to tell apart, and an independent reading of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from tests.services import KAFKA_SECONDS

PARTITIONS = 3
MALFORMED = b'{"n": 1, "text": '

#: (partition, offset, payload): what must be in the database, once.
Records = Counter[tuple[int, int, bytes]]


@dataclass(frozen=True)
class MixedTopic:
    """What a plain consumer found.

    Attributes:
        name: The topic.
        records: All readable records with a value.
        tombstones: Number of readable records without one.
        ends: End offset of each partition, markers included.
    """

    name: str
    records: Records
    tombstones: int
    ends: tuple[int, ...]

    def below(self, positions: dict[int, int]) -> Records:
        """Return the records below positions; none of a partition that has no position."""
        return Counter(r for r in self.records.elements() if r[1] < positions.get(r[0], 0))


def value(number: int) -> bytes:
    """Return the number's value, just as :func:`tests.crash.pipeline_at_risk.PipelineAtRisk.loaded` rebuilds it."""
    return json.dumps({"n": number, "text": f"värde {number}"}).encode()


def produce_mix(producer: Callable[..., Any], topic: str) -> None:
    """Writes plain, malformed and null values, and transactions that were committed or aborted, to each partition.

    Each partition gets 29 offsets: 20 values (three malformed), two tombstones, four aborted values and three markers;
    it ends with an aborted transaction.
    """
    plain = producer()
    send(plain, topic, [*map(value, range(8)), MALFORMED, None])
    transactional = producer(transactional_id=f"{topic}-writer")
    transactional.init_transactions()
    for is_aborted in (True, False, True):
        transactional.begin_transaction()
        send(transactional, topic, [value(100), value(101)] if is_aborted else [value(102), MALFORMED, value(103)])
        if is_aborted:
            transactional.abort_transaction()
        else:
            transactional.commit_transaction()
        if not is_aborted:
            send(plain, topic, [*map(value, range(200, 207)), MALFORMED, None])


def send(producer: Any, topic: str, values: list[bytes | None]) -> None:
    """Writes the values to each partition, in this order; returns when the broker has them."""
    for number, content in enumerate(values):
        for partition in range(PARTITIONS):
            producer.produce(topic, key=f"{number}", value=content, partition=partition)
    assert producer.flush(KAFKA_SECONDS) == 0


def read_independently(bootstrap: str, topic: str) -> MixedTopic:
    """Reads a topic with a plain consumer, ``read_committed``, from the beginning to the end of each partition."""
    config = {"bootstrap.servers": bootstrap, "group.id": "independent", "isolation.level": "read_committed"}
    consumer = Consumer({**config, "enable.auto.commit": False, "enable.partition.eof": True})
    try:
        partitions = range(len(consumer.list_topics(topic, timeout=KAFKA_SECONDS).topics[topic].partitions))
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        messages = list(_until_all_ended(consumer, len(partitions)))
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=KAFKA_SECONDS)[1] for n in partitions]
    finally:
        consumer.close()
    return MixedTopic(
        name=topic,
        records=Counter((m.partition(), m.offset(), m.value()) for m in messages if m.value() is not None),
        tombstones=sum(m.value() is None for m in messages),
        ends=tuple(ends),
    )


def _until_all_ended(consumer: Consumer, partitions: int) -> Iterator[Any]:
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(KAFKA_SECONDS)
        assert message is not None, "Kafka gives nothing more"
        if message.error() is None:
            yield message
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        else:
            raise KafkaException(message.error())
