"""Topics with a known number of records, made once for each workload and size."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from sandbox.registry import client_settings
from tests.benchmarks.workloads import WORKLOADS, Workload

_SECONDS = 60.0
_PRODUCERS = 2
#: A topic is read for hours after it was filled: nothing may expire meanwhile.
_CONFIG = {"retention.ms": "-1", "max.message.bytes": "4194304"}


def filled_topic(bootstrap: str, workload: Workload, records: int, *, registry_url: str = "") -> str:
    """Return the name of a topic that holds exactly the records [0, ``records``) of the workload, lz4-compressed.

    A workload with a schema needs the registry's address; the schema's id is part of the topic's name, since a new
    registry may give another one.

    Raises:
        ValueError: The topic holds another number after it was filled.
    """
    topic, frame = f"bench-{workload.name}-{records}", b""
    if workload.schema:
        schema_id = _registered(registry_url, workload)
        topic, frame = f"{topic}-schema-{schema_id}", workload.frame(schema_id)
    if records_in(bootstrap, topic) == records:
        return topic
    admin = AdminClient({"bootstrap.servers": bootstrap})
    _recreate(admin, topic, workload.partitions)
    print(f"filling {topic} ...", file=sys.stderr, flush=True)
    context = multiprocessing.get_context("spawn")
    arguments = [(bootstrap, topic, workload.name, share, records, frame) for share in range(_PRODUCERS)]
    with context.Pool(_PRODUCERS) as pool:
        pool.starmap(_produce, arguments)
    found = records_in(bootstrap, topic)
    if found != records:
        raise ValueError(f"{topic} holds {found} records instead of {records}")
    return topic


def new_topics(bootstrap: str, names: Sequence[str], partitions: int) -> None:
    """Make topics, empty whatever they held before."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for name in names:
        _recreate(admin, name, partitions)


def send_more(bootstrap: str, topic: str, workload: Workload, records: int) -> None:
    """Send the first records of a workload (JSON without a registry) once more, in this process."""
    for share in range(_PRODUCERS):
        _produce(bootstrap, topic, workload.name, share, records, b"")


def _registered(registry_url: str, workload: Workload) -> int:
    with SchemaRegistryClient(client_settings(registry_url)) as registry:
        schema = Schema(workload.schema, workload.schema_type)
        return int(registry.register_schema(f"bench-{workload.name}-value", schema))


def records_in(bootstrap: str, topic: str) -> int:
    """Counts the offsets of a topic that nobody deletes from; 0 when there is no such topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    metadata = admin.list_topics(timeout=_SECONDS).topics.get(topic)
    if metadata is None:
        return 0
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in metadata.partitions}
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            return sum(answer.result(_SECONDS).offset for answer in admin.list_offsets(asked).values())
        except KafkaException:
            # A broker that has just started does not lead its partitions yet.
            if time.monotonic() > deadline:
                raise
        time.sleep(0.5)


def end_offsets(consumer: Consumer, topic: str) -> dict[int, int]:
    """Return the end offset of every partition."""
    partitions = consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
    return {number: consumer.get_watermark_offsets(TopicPartition(topic, number), _SECONDS)[1] for number in partitions}


def _recreate(admin: AdminClient, topic: str, partitions: int) -> None:
    if topic in admin.list_topics(timeout=_SECONDS).topics:
        admin.delete_topics([topic])[topic].result(_SECONDS)
        time.sleep(2)
    admin.create_topics([NewTopic(topic, partitions, 1, config=_CONFIG)])[topic].result(_SECONDS)


def _produce(bootstrap: str, topic: str, workload_name: str, share: int, records: int, frame: bytes) -> None:
    """Sends every record whose partition belongs to this share: order within a partition is that of the numbers."""
    workload = WORKLOADS[workload_name]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 50,
            "message.max.bytes": 4_194_304,
            "queue.buffering.max.kbytes": 262_144,
        }
    )
    for number in range(records):
        partition = workload.partition(number)
        if partition % _PRODUCERS != share:
            continue
        value, key = frame + workload.value(number), workload.key(number) if workload.key else None
        while True:
            try:
                producer.produce(topic, value, key=key, partition=partition)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1024 < _PRODUCERS:
            producer.poll(0)
    if producer.flush(600):
        raise RuntimeError("records were not delivered")
