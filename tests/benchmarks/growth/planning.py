"""Times plans of a topic with many partitions beside a plain ``list_offsets`` of the same partitions.

A plan is the whole step: ledger read, Kafka asked for log start, last stable offset and high watermark, ranges chosen,
plan recorded. Both begin with a new client, as a task of Airflow does, in a process that has its libraries loaded.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic
from psycopg2 import sql

from kafka_ingest.kafka.log import KafkaLog
from kafka_ingest.postgres.database import KeptSession
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.protocol.batch import Batch, Request
from kafka_ingest.protocol.plan import PlanPorts, plan_batch
from kafka_ingest.protocol.ports import Log
from tests.benchmarks.growth.servers import new_ledger, own_kafka, own_postgres
from tests.benchmarks.world import execute
from tests.builders import pipeline_settings
from tests.deadlines import until
from tests.fakes.log import FakeLog

_TOPIC = "many"
_SECONDS = 120.0
#: What a plan asks for: log start, last stable offset, high watermark (``kafka/log.py``).
_KINDS = (
    (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
    (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
    (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
)


class _EveryRunHasEnded:
    """Port ``RunStates``: a plan supersedes the one before it, so that plans can follow each other."""

    def is_finished(self, request: Request) -> bool:
        return True


class _Plans:
    """Plans one topic again and again, each time as another run."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._params = params
        self._settings = pipeline_settings(_TOPIC)
        execute(params, sql.SQL("CREATE SCHEMA shop"))

    def plan(self, log: Log) -> Batch:
        sessions = KeptSession(self._params)
        ledger = PostgresLedger(self._params, sessions=sessions)
        ports = PlanPorts(ledger, log, PostgresTarget(self._params, sessions=sessions), _EveryRunHasEnded())
        return plan_batch(self._settings, Request("orders", uuid.uuid4().hex), ports, settings_hash="one")

    def plan_on_kafka(self, bootstrap: str) -> Batch:
        with KafkaLog({"bootstrap.servers": bootstrap}) as log:
            return self.plan(log)


def main() -> None:
    """Prints one JSON object: seconds of each round, medians and ratios."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--partitions", type=int, default=2_000, help="of the topic on a broker (%(default)s)")
    parser.add_argument("--fake-partitions", type=int, default=10_000, help="of the topic in memory (%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="of each, interleaved (%(default)s)")
    options = parser.parse_args()
    with own_postgres() as postgres:
        with own_kafka() as broker:
            _create_topic(broker.bootstrap, options.partitions)
            plans = _Plans(new_ledger(postgres))
            result = _compare(broker.bootstrap, plans, options.partitions, options.rounds)
        fake_plans = _Plans(new_ledger(postgres))
        result |= _fake(fake_plans, options.fake_partitions, options.rounds)
    print(
        f"a plan of {options.partitions} partitions: {result['plan_seconds']:.3f} s, {result['ratio']:.2f} times a"
        f" plain list_offsets; with a record in each {result['ratio_of_full_plan']:.2f} times; three list_offsets are"
        f" {result['ratio_of_three_list_offsets']:.2f} times one;"
        f" of {options.fake_partitions} partitions in memory: {result['fake_plan_seconds']:.3f} s",
        file=sys.stderr,
    )
    print(json.dumps(result))


def _compare(bootstrap: str, plans: _Plans, partitions: int, rounds: int) -> dict[str, Any]:
    plans.plan_on_kafka(bootstrap)  # the first plan creates the table and the positions
    contenders: dict[str, Callable[[], object]] = {
        "list_offsets": lambda: _list_offsets(bootstrap, partitions, _KINDS[1:2]),
        "three_list_offsets": lambda: _list_offsets(bootstrap, partitions, _KINDS),
        "plan": lambda: plans.plan_on_kafka(bootstrap),
    }
    empty = _timed(contenders, rounds)
    _produce_everywhere(bootstrap, partitions)
    full = _timed({name: contenders[name] for name in ("list_offsets", "plan")}, rounds)
    found = plans.plan_on_kafka(bootstrap)
    if len(found.ranges) != partitions:
        raise ValueError(f"the plan has {len(found.ranges)} ranges instead of {partitions}")
    return {
        "partitions": partitions,
        "rounds": rounds,
        "seconds": empty,
        "seconds_with_a_record_in_each": full,
        "list_offsets_seconds": median(empty["list_offsets"]),
        "plan_seconds": median(empty["plan"]),
        "ratio": median(empty["plan"]) / median(empty["list_offsets"]),
        "ratio_of_least": min(empty["plan"]) / min(empty["list_offsets"]),
        "ratio_of_three_list_offsets": median(empty["three_list_offsets"]) / median(empty["list_offsets"]),
        "ratio_of_full_plan": median(full["plan"]) / median(full["list_offsets"]),
    }


def _fake(plans: _Plans, partitions: int, rounds: int) -> dict[str, Any]:
    log = FakeLog()
    log.create_topic(_TOPIC, partitions)
    plans.plan(log)
    seconds = _timed({"plan": lambda: plans.plan(log)}, rounds)["plan"]
    return {"fake_partitions": partitions, "fake_seconds": seconds, "fake_plan_seconds": median(seconds)}


def _timed(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            begin = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def _list_offsets(bootstrap: str, partitions: int, kinds: tuple[tuple[OffsetSpec, IsolationLevel], ...]) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = 0
    for spec, isolation in kinds:
        asked = {TopicPartition(_TOPIC, number): spec for number in range(partitions)}
        answers = admin.list_offsets(asked, isolation_level=isolation)
        found += sum(answer.result(_SECONDS).offset for answer in answers.values())
    return found


def _create_topic(bootstrap: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(_TOPIC, partitions, 1)])[_TOPIC].result(_SECONDS)
    asked = {TopicPartition(_TOPIC, number): OffsetSpec.latest() for number in range(partitions)}
    until(
        lambda: not any(answer.exception(_SECONDS) for answer in admin.list_offsets(asked).values()),
        "every partition tells its end offset",
        _SECONDS,
    )


def _produce_everywhere(bootstrap: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(partitions):
        producer.produce(_TOPIC, value=b"x", partition=number)
    if producer.flush(_SECONDS):
        raise ValueError("records were not delivered")


if __name__ == "__main__":
    main()
