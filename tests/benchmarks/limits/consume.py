"""Limit: consuming the topic and doing nothing with it. ``--processes 2`` shares the partitions between two processes.

Says how many records a second were consumed between the first and the last one: ``{"records_per_second": …}``.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition

from kafka_ingest.kafka.client import DEFAULTS, FIXED
from tests.benchmarks.load import Load, load_of_command
from tests.benchmarks.topics import end_offsets


def main() -> None:
    """Consumes all partitions."""
    processes = 2 if "--two" in sys.argv else 1
    sys.argv = [argument for argument in sys.argv if argument != "--two"]
    load, _ = load_of_command(str(__doc__))
    shares = [list(range(load.partitions))[number::processes] for number in range(processes)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        answers = pool.starmap(_consume, [(load, share) for share in shares])
    consumed = sum(count for count, _, _ in answers)
    if consumed != load.records:
        sys.exit(f"consumed {consumed} records instead of {load.records}")
    seconds = max(end for _, _, end in answers) - min(begin for _, begin, _ in answers)
    print(json.dumps({"records_per_second": load.records / seconds}))


def _consume(load: Load, partitions: Sequence[int]) -> tuple[int, float, float]:
    config = {**DEFAULTS, **FIXED, "bootstrap.servers": load.bootstrap, "isolation.level": "read_committed"}
    with closing(Consumer(config)) as consumer:
        ends = end_offsets(consumer, load.topic)
        left = {number for number in partitions if ends[number]}
        begin = time.time()
        consumer.assign([TopicPartition(load.topic, number, 0) for number in left])
        count = 0
        while left:
            for message in consumer.consume(10_000, 0.05):
                if message.error() is None:
                    count += 1
                else:  # the end of a partition
                    left.discard(message.partition())
        return count, begin, time.time()


if __name__ == "__main__":
    main()
