"""Times a plan that finds nothing to read beside ``list_offsets`` and two queries.

Both open their clients anew, as a task of Airflow does, in a process that has its libraries loaded. No JVM is started.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from statistics import median
from typing import Any

import psycopg2
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic
from psycopg2 import sql

from kafka_ingest.kafka.log import KafkaLog
from kafka_ingest.postgres.database import KeptSession
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.protocol.batch import BatchState, Request
from kafka_ingest.protocol.plan import PlanPorts, plan_batch
from tests.benchmarks.growth.servers import new_ledger, own_kafka, own_postgres
from tests.benchmarks.world import execute
from tests.builders import pipeline_settings
from tests.fakes.loading import FakeRunStates

_TOPIC, _PARTITIONS = "quiet", 4
_SECONDS = 30.0


def main() -> None:
    """Prints one JSON object: seconds of each round, medians and their ratio."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="of each, interleaved (%(default)s)")
    options = parser.parse_args()
    with own_postgres() as postgres, own_kafka() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)])[_TOPIC].result(_SECONDS)
        params = new_ledger(postgres)
        execute(params, sql.SQL("CREATE SCHEMA shop"))
        _plan(broker.bootstrap, params)  # the first plan creates the table and the positions
        plain, plan = [], []
        for _ in range(options.rounds):
            plain.append(_seconds(lambda: _plain(broker.bootstrap, params)))
            plan.append(_seconds(lambda: _plan(broker.bootstrap, params)))
    result = {
        "rounds": options.rounds,
        "plain_seconds": median(plain),
        "plan_seconds": median(plan),
        "ratio": median(plan) / median(plain),
    }
    print(
        f"nothing to read: {result['plan_seconds'] * 1e3:.1f} ms, {result['ratio']:.2f} times list_offsets and two"
        f" queries ({result['plain_seconds'] * 1e3:.1f} ms)",
        file=sys.stderr,
    )
    print(json.dumps(result))


def _seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _plain(bootstrap: str, params: Mapping[str, Any]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = {TopicPartition(_TOPIC, number): OffsetSpec.latest() for number in range(_PARTITIONS)}
    for answer in admin.list_offsets(asked).values():
        answer.result(_SECONDS)
    with closing(psycopg2.connect(**params)) as connection, connection.cursor() as cursor:
        for table in ("committed_offset", "batch"):
            cursor.execute(f"SELECT * FROM kafka_ingest.{table} WHERE pipeline = 'orders' LIMIT 100")
            cursor.fetchall()


def _plan(bootstrap: str, params: Mapping[str, Any]) -> None:
    sessions = KeptSession(params)
    with KafkaLog({"bootstrap.servers": bootstrap}) as log:
        ports = PlanPorts(
            PostgresLedger(params, sessions=sessions), log, PostgresTarget(params, sessions=sessions), FakeRunStates()
        )
        batch = plan_batch(pipeline_settings(_TOPIC), Request("orders", uuid.uuid4().hex), ports, settings_hash="one")
    if batch.state is not BatchState.COMMITTED or batch.ranges:
        raise ValueError(f"the plan found something to read: {batch.ranges}")


if __name__ == "__main__":
    main()
