"""Topics on which the reader must agree with Spark's Kafka source: each builds a topic and names the ranges to read."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer

from kafka_ingest.kafka.client import client_config
from kafka_ingest.protocol.staging import Split
from kafka_ingest.settings import IsolationLevel
from spark_jobs.reader import KafkaRangeReader
from tests.contracts.log_worlds import KafkaWorld
from tests.deadlines import until

SECONDS = 30.0
FAST_COMPACTION = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.0001",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "1000",
    "delete.retention.ms": "0",
}

#: Bounds [start, end) by partition.
Bounds = Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Scenario:
    """A topic and its reads; at most one range of a partition a read."""

    topic: str
    reads: tuple[Bounds, ...]
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED


class Sandbox:
    """What a scenario is built with."""

    def __init__(self, bootstrap: str, create: Callable[..., str]) -> None:
        self.bootstrap = bootstrap
        self.create = create
        self.world = KafkaWorld(bootstrap, create)

    def send(self, topic: str, records: list[dict[str, Any]], **settings: Any) -> None:
        config = {"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True, **settings}
        producer = Producer(config)
        failed: list[Any] = []
        for record in records:
            producer.produce(
                topic, **{"partition": 0, **record}, on_delivery=lambda e, _: failed.append(e) if e else None
            )
        assert producer.flush(SECONDS) == 0
        assert not failed, failed[0]

    def count(self, topic: str, end: int) -> int:
        config = client_config({"bootstrap.servers": self.bootstrap}, IsolationLevel.READ_COMMITTED, client_id="count")
        with KafkaRangeReader(config, no_progress_timeout_seconds=SECONDS) as reader:
            batches: list[pa.RecordBatch] = list(reader.read(Split(0, topic, 0, 0, 0, end)))
        return sum(batch.num_rows for batch in batches)


def plain(box: Sandbox) -> Scenario:
    """Two partitions, 1,000 records each with keys, values and times of all kinds; several ranges."""
    topic, dice = box.create(2, {"retention.ms": "-1"}), random.Random(7)  # retention goes by the records' times
    records = [
        {
            "partition": number % 2,
            "key": dice.choice([None, b"", dice.randbytes(8)]),
            "value": dice.choice([None, b"", b"null", dice.randbytes(dice.randrange(300))]),
            "timestamp": dice.randrange(1, 1_700_000_000_000),
            "headers": dice.choice([None, [], [("a", b"1"), ("b", None), ("a", b"")], [("é", dice.randbytes(5))]]),
        }
        for number in range(2_000)
    ]
    box.send(topic, records)
    return Scenario(topic, ({0: (0, 1_000), 1: (0, 1_000)}, {0: (1, 2), 1: (500, 999)}, {0: (999, 1_000)}))


def log_append_time(box: Sandbox) -> Scenario:
    topic = box.create(1, {"message.timestamp.type": "LogAppendTime"})
    box.send(topic, [{"value": b"x", "timestamp": 1_000} for _ in range(20)])
    return Scenario(topic, ({0: (0, 20)},))


def empty(box: Sandbox) -> Scenario:
    """Records that retention took: the log is empty, its offsets are not zero."""
    topic = box.create(2)
    box.world.produce(topic, b"a", b"b")
    box.world.delete_records(topic, 0, 2)
    return Scenario(topic, ({0: (2, 2), 1: (0, 0)},))


def transactions(box: Sandbox) -> Scenario:
    """0-2 aborted, 3 marker, 4-5 plain, 6-8 committed, 9 marker, 10-11 aborted, 12 marker; 13 open, then plain."""
    topic = box.create(1)
    box.world.begin(topic, b"0", b"1", b"2").abort()
    box.world.produce(topic, b"4", b"5")
    box.world.begin(topic, b"6", b"7", b"8").commit()
    box.world.begin(topic, b"10", b"11").abort()
    box.world.begin(topic, b"13", b"14")
    box.world.produce(topic, b"15", b"16")
    whole, aborted_head, marker_alone, committed, aborted_tail = (0, 13), (0, 4), (3, 4), (6, 10), (9, 13)
    cut_through = (1, 7)
    ranges = (whole, aborted_head, marker_alone, committed, aborted_tail, cut_through)
    return Scenario(topic, tuple({0: bounds} for bounds in ranges))


def transactions_uncommitted(box: Sandbox) -> Scenario:
    """0-1 aborted, 2 marker, 3-4 open, 5 plain: all but the marker is read."""
    topic = box.create(1)
    box.world.begin(topic, b"0", b"1").abort()
    box.world.begin(topic, b"3", b"4")
    box.world.produce(topic, b"5")
    return Scenario(topic, ({0: (0, 6)}, {0: (1, 4)}), IsolationLevel.READ_UNCOMMITTED)


def interleaved_transactions(box: Sandbox) -> Scenario:
    """Two producers at once in one partition: one commits, one aborts."""
    topic = box.create(1)
    first, second = box.world.begin(topic, b"0"), box.world.begin(topic, b"1")
    first.produce(b"2")
    second.produce(b"3")
    second.abort()
    first.produce(b"5")
    first.commit()
    return Scenario(topic, ({0: (0, 7)}, {0: (1, 6)}))


def compacted(box: Sandbox) -> Scenario:
    """500 records of 5 keys and one tombstone, compacted to a handful; ranges that begin and end in the gaps."""
    topic = box.create(1, FAST_COMPACTION)
    box.send(topic, [{"key": b"k%d" % (number % 5), "value": b"%d" % number} for number in range(500)])
    box.send(topic, [{"key": b"k0", "value": None}])
    end = 501

    def is_compacted() -> bool:
        nonlocal end
        box.send(topic, [{"key": b"last", "value": b"%d" % end}])  # so that the segment is closed
        end += 1
        return box.count(topic, end) < 100

    until(is_compacted, "the log is compacted", SECONDS * 2)
    return Scenario(topic, ({0: (0, end)}, {0: (10, 400)}, {0: (250, 500)}))


def large(box: Sandbox) -> Scenario:
    """Records above 1 MB, which is a partition's share of one fetch, between small ones."""
    topic = box.create(1, {"max.message.bytes": "4000000"})
    sizes = [10, 1_048_576, 2_500_000, 10, 3_000_000]
    records: list[dict[str, Any]] = [{"value": bytes([number]) * size} for number, size in enumerate(sizes)]
    box.send(topic, records, **{"message.max.bytes": 4_000_000})
    return Scenario(topic, ({0: (0, 5)}, {0: (2, 3)}))


def compressed(codec: str) -> Callable[[Sandbox], Scenario]:
    def build(box: Sandbox) -> Scenario:
        topic = box.create(1)
        records: list[dict[str, Any]] = [
            {"key": b"k%d" % number, "value": b"value-%d-" % number * 20, "headers": [("n", b"%d" % number)]}
            for number in range(3_000)
        ]
        box.send(topic, records, **{"compression.type": codec, "linger.ms": 20})
        return Scenario(topic, ({0: (0, 3_000)}, {0: (1_234, 1_300)}))

    return build


SCENARIOS: Mapping[str, Callable[[Sandbox], Scenario]] = {
    "plain": plain,
    "log append time": log_append_time,
    "empty": empty,
    "transactions": transactions,
    "transactions, uncommitted": transactions_uncommitted,
    "interleaved transactions": interleaved_transactions,
    "compacted": compacted,
    "large": large,
    **{f"compressed with {codec}": compressed(codec) for codec in ("none", "gzip", "snappy", "lz4", "zstd")},
}
