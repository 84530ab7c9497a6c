"""A trial on a real broker: compaction drops a tombstone that nobody has read, and the pipeline notices."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kafka_ingest.errors import DeletesMayBeLost
from kafka_ingest.protocol.batch import RunMode, RunOptions
from sandbox.kafka import KafkaBroker
from tests.integration.pipeline_under_test import FedPipeline
from tests.integration.test_current_state import STATE, notes, send, state_target

#: The broker's cleaner looks every 15 s (log.cleaner.backoff.ms), and a tombstone takes two of its passes (KIP-534).
CLEANED_SECONDS = 180
DAY_MS = 86_400_000


def set_retention(broker: KafkaBroker, topic: str, milliseconds: int) -> None:
    entry = ConfigEntry("delete.retention.ms", str(milliseconds), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def readable_offsets(broker: KafkaBroker, topic: str) -> Iterator[int]:
    """Yield the offsets that a consumer finds in the one partition."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "x", "enable.partition.eof": True}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            yield message.offset()


@pytest.mark.slow
def test_a_delete_that_expired_unread_stops_the_pipeline_and_a_rebuild_finds_its_row(
    pipeline: FedPipeline, kafka_broker: KafkaBroker
) -> None:
    """1@0, 2@1, read; the delete of 1@2 is written, cleaned and dropped before the next run."""
    quick = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.0"}
    topic = pipeline.open(1, {**quick, "delete.retention.ms": str(DAY_MS)})
    pipeline.write(topic, **STATE, target=state_target(pipeline.table))
    send(pipeline, (1, "a"), (2, "b"))
    pipeline.load_here()
    set_retention(kafka_broker, topic, 1_000)
    send(pipeline, (1, None))
    deadline = time.monotonic() + CLEANED_SECONDS
    for number in count():
        send(pipeline, (3, f"{number}"))  # a new segment, so that the cleaner may look at the one before
        if 2 not in readable_offsets(kafka_broker, topic):
            break
        assert time.monotonic() < deadline, "the broker has not dropped the tombstone"
        time.sleep(1)
    with pytest.raises(DeletesMayBeLost, match=r"delete\.retention\.ms is 1,000"):
        pipeline.load_here()
    set_retention(kafka_broker, topic, DAY_MS)
    pipeline.load_here(RunOptions(RunMode.REBUILD, reload_what_is_left=True, reason="the delete of 1 expired"))
    assert [key for key, *_ in notes(pipeline)] == [2, 3]
