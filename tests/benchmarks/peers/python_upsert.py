"""Peer: one Python process that keeps one row a key: COPY into a temporary table, then INSERT … ON CONFLICT from it.

What one writes with care: typed decoding, one transaction for every 50,000 records and their offsets, the newest record
of each key in it, and no older record over a newer one. It is exact when it is restarted, as long as nobody starts two
of it. It has no deletes, no dead letters, and no memory of what was deleted.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg

from tests.benchmarks.load import Load
from tests.benchmarks.peers.contender import run
from tests.benchmarks.peers.offsets import ADVANCE, OFFSETS, START
from tests.benchmarks.peers.python_copy import typed_copy
from tests.benchmarks.peers.topic import assign, bounds, chunks, new_consumer, next_offsets
from tests.benchmarks.workloads import WORKLOADS

_RECORDS_A_TRANSACTION = 50_000
_METADATA = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp")


def load_records(load: Load, params: dict[str, Any]) -> None:
    """Loads the topic."""
    chunk, upsert = f"chunk_of_{load.table}", _upsert(load)
    copy = typed_copy(replace(load, table=chunk), schema="pg_temp")
    with closing(psycopg.connect(**params)) as connection, closing(new_consumer(load, "bench-upsert")) as consumer:
        connection.execute(OFFSETS)
        connection.execute(START, (load.table,))
        connection.execute(f"CREATE TEMP TABLE {chunk} (LIKE public.{load.table}) ON COMMIT DELETE ROWS".encode())
        connection.commit()
        partitions = bounds(consumer, load)
        assign(consumer, load, partitions)
        for messages in chunks(consumer, partitions, _RECORDS_A_TRANSACTION):
            copy(connection, messages)
            connection.execute(upsert)
            advance = [(load.table, load.topic, *position) for position in next_offsets(messages).items()]
            connection.cursor().executemany(ADVANCE, advance)
            connection.commit()


def _upsert(load: Load) -> bytes:
    workload = WORKLOADS[load.workload]
    key, columns = workload.key_column, (*workload.columns, *_METADATA)
    settings = ", ".join(f"{name} = excluded.{name}" for name in columns if name != key)
    return f"""
        INSERT INTO public.{load.table} AS t
        SELECT DISTINCT ON ({key}) * FROM chunk_of_{load.table} ORDER BY {key}, kafka_offset DESC
        ON CONFLICT ({key}) DO UPDATE SET {settings} WHERE excluded.kafka_offset >= t.kafka_offset
    """.encode()


if __name__ == "__main__":
    run(load_records)
