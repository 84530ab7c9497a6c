"""Peer: one Python process that consumes, decodes and copies, with its offsets in the same transaction as the rows.

The best that one process does with well-known means: msgspec with typed fields, psycopg 3 streaming COPY. With
``--plain`` it is what most people write: ``json.loads``, the csv module, psycopg2's ``copy_expert``.

It is exact when it is restarted, as long as nobody starts two of it. It has no dead letters: a value that does not fit
stops it for ever.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import psycopg
import psycopg2
from confluent_kafka import Message
from psycopg.adapt import Dumper

from tests.benchmarks.load import Load
from tests.benchmarks.peers.contender import option, run
from tests.benchmarks.peers.offsets import ADVANCE, OFFSETS, START
from tests.benchmarks.peers.topic import assign, bounds, chunks, metadata, new_consumer, next_offsets
from tests.benchmarks.workloads import WORKLOADS

_ROWS_A_TRANSACTION = 50_000
_TYPES = {
    "bigint": int | None,
    "integer": int | None,
    "text": str | None,
    "double precision": float | None,
    "boolean": bool | None,
    "timestamptz": str | None,  # PostgreSQL reads it
    "jsonb": msgspec.Raw,
}

#: Writes messages through an open connection, without committing.
Copy = Callable[[Any, list[Message]], None]


class _RawDumper(Dumper):
    """JSON that was not decoded goes as it came."""

    def dump(self, obj: Any) -> bytes:
        return bytes(obj)


def load_records(load: Load, params: dict[str, Any], *, plain: bool) -> None:
    """Loads the topic: one transaction for every 50,000 rows and their offsets."""
    connect, copy = (psycopg2.connect, plain_copy(load)) if plain else (psycopg.connect, typed_copy(load))
    with closing(connect(**params)) as connection, closing(new_consumer(load, "bench-python-copy")) as consumer:
        connection.cursor().execute(OFFSETS)
        connection.cursor().execute(START, (load.table,))
        partitions = bounds(consumer, load)
        assign(consumer, load, partitions)
        for messages in chunks(consumer, partitions, _ROWS_A_TRANSACTION):
            copy(connection, messages)
            advance = [(load.table, load.topic, *position) for position in next_offsets(messages).items()]
            connection.cursor().executemany(ADVANCE, advance)
            connection.commit()


def typed_copy(load: Load, schema: str = "public") -> Copy:
    """Return the quick way."""
    columns = WORKLOADS[load.workload].columns
    fields = [(name, _TYPES.get(kind, Decimal | None)) for name, kind in columns.items()]
    decode = msgspec.json.Decoder(msgspec.defstruct("Record", fields)).decode

    def copy(connection: psycopg.Connection[Any], messages: list[Message]) -> None:
        with connection.cursor() as cursor, cursor.copy(_statement(load, "text", schema).encode()) as stream:
            cursor.adapters.register_dumper(msgspec.Raw, _RawDumper)
            for message in messages:
                stream.write_row((*msgspec.structs.astuple(decode(message.value())), *metadata(message)))

    return copy


def plain_copy(load: Load) -> Copy:
    """Return the usual way; an empty text becomes NULL in it."""
    columns = WORKLOADS[load.workload].columns
    row = partial(_plain_row, list(columns), [kind == "jsonb" for kind in columns.values()])

    def copy(connection: Any, messages: list[Message]) -> None:
        buffer = io.StringIO()
        csv.writer(buffer).writerows(map(row, messages))
        buffer.seek(0)
        connection.cursor().copy_expert(_statement(load, "csv"), buffer)

    return copy


def _plain_row(names: list[str], nested: list[bool], message: Message) -> tuple[Any, ...]:
    record = json.loads(message.value())
    values = [record.get(name) for name in names]
    return (*(json.dumps(v) if is_json else v for v, is_json in zip(values, nested, strict=True)), *metadata(message))


def _statement(load: Load, form: str, schema: str = "public") -> str:
    return f'COPY {schema}."{load.table}" FROM STDIN (FORMAT {form})'


if __name__ == "__main__":
    run(partial(load_records, plain=option("--plain")))
