"""Peer: a Python consumer with ``execute_values``, as people write it around Airflow's consume operator.

Offsets are committed to Kafka after the database's commit: a crash between the two loads up to 5,000 records twice. It
has no dead letters: a value that does not fit stops it for ever.
"""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from typing import Any

import psycopg2
from confluent_kafka import Message
from psycopg2.extras import Json, execute_values

from tests.benchmarks.load import Load
from tests.benchmarks.peers.contender import run
from tests.benchmarks.peers.topic import bounds, chunks, metadata, new_consumer
from tests.benchmarks.workloads import WORKLOADS

_RECORDS_A_BATCH = 5_000


def load_records(load: Load, params: dict[str, Any]) -> None:
    """Loads the topic: for every 5,000 records one statement, a commit, and a commit to Kafka."""
    columns = WORKLOADS[load.workload].columns
    statement = f'INSERT INTO public."{load.table}" VALUES %s'
    with (
        closing(psycopg2.connect(**params)) as connection,
        closing(new_consumer(load, f"bench-{uuid.uuid4().hex}")) as consumer,
    ):
        consumer.subscribe([load.topic])
        for messages in chunks(consumer, bounds(consumer, load), _RECORDS_A_BATCH):
            with connection.cursor() as cursor:
                rows = [_row(columns, message) for message in messages]
                execute_values(cursor, statement, rows, page_size=_RECORDS_A_BATCH)
            connection.commit()
            consumer.commit(asynchronous=False)


def _row(columns: Any, message: Message) -> tuple[Any, ...]:
    record = json.loads(message.value())
    values = (Json(record.get(name)) if kind == "jsonb" else record.get(name) for name, kind in columns.items())
    return (*values, *metadata(message))


if __name__ == "__main__":
    run(load_records)
