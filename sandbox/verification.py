"""An independent check of a load: a plain consumer reads the topic, and looks for every record in the database.

Nothing of the product's reading or decoding is used. Records are compared as a multiset of (partition, offset,
key and payload): the payload of a row is rebuilt from its typed columns, the payload of a dead letter is its bytes.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import psycopg2
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from psycopg2 import sql
from psycopg2.extras import register_default_jsonb

from sandbox.errors import SandboxError
from sandbox.ledger_history import LedgerHistory

#: What tells one record from another: partition, offset, digest of key and payload.
Identity = tuple[int, int, bytes]

_FETCH_ROWS = 20_000
_FETCH_SECONDS = 1.0
_SILENCE_SECONDS = 60.0
_COLUMNS = ("order_id", "customer", "status", "amount", "currency", "ordered_at", "note", "lines", "tags")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is in the topic against what is in the database.

    Attributes:
        produced: Records that must be in the database.
        rows: Rows in the target.
        dead_letters: Dead letters.
        missing: Records that are in neither, and tombstones that no range counted.
        duplicates: Copies beyond the first.
        unexpected: Rows and dead letters without such a record in the topic, or of one that was given up.
        tombstones: With the ledger's history: records without a value, which must be counted. Not among ``produced``.
        miscounted_ranges: With the ledger's history: published ranges that counted another number of tombstones.
        given_up: With the ledger's history: records that a position change gave up and nothing loaded. Not among
            ``produced`` and ``tombstones``.
    """

    produced: int
    rows: int
    dead_letters: int
    missing: int
    duplicates: int
    unexpected: int
    tombstones: int = 0
    miscounted_ranges: int = 0
    given_up: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether every record is there exactly once, and nothing else."""
        return not (self.missing or self.duplicates or self.unexpected or self.miscounted_ranges)


def compare_orders(
    bootstrap: str,
    topic: str,
    postgres: Mapping[str, str],
    table: tuple[str, str],
    *,
    history: LedgerHistory | None = None,
) -> Comparison:
    """Compare a topic of orders with the table that they were loaded into, and with the dead letters.

    Args:
        bootstrap: Kafka's address.
        topic: The topic; read whole, up to its end now.
        postgres: Keyword arguments for ``psycopg2.connect``.
        table: Schema and name of the target.
        history: For a pipeline with ``tombstones: count``, or one that may have given offsets up.

    Raises:
        SandboxError: Kafka stopped answering.
    """
    topic_content = _TopicContent(history)
    produced = Counter(topic_content.expected(messages(bootstrap, topic)))
    rows = Counter(identity for _, identity in order_rows(postgres, topic, table))
    dead_letters = Counter(dead_letter_identities(postgres, topic))
    loaded = rows + dead_letters
    tombstones = topic_content.tombstones
    return Comparison(
        produced=produced.total(),
        rows=rows.total(),
        dead_letters=dead_letters.total(),
        missing=(produced - loaded).total() + (history.uncounted(tombstones) if history else 0),
        duplicates=loaded.total() - len(loaded),
        unexpected=len(loaded.keys() - produced.keys()),
        tombstones=sum(map(len, tombstones.values())) - topic_content.tombstones_given_up,
        miscounted_ranges=history.miscounted(tombstones) if history else 0,
        given_up=topic_content.given_up,
    )


@dataclass(slots=True)
class _TopicContent:
    """The records of a topic, sorted: expected in a table, counted tombstones (by partition), given up."""

    history: LedgerHistory | None
    tombstones: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    given_up: int = 0
    tombstones_given_up: int = 0

    def expected(self, messages: Iterator[Any]) -> Iterator[Identity]:
        """Yield what must be in a table; the rest is known when it has ended."""
        for message in messages:
            partition, offset, value = message.partition(), message.offset(), message.value()
            is_given_up = self.history is not None and self.history.is_given_up(partition, offset)
            self.given_up += is_given_up
            if value is None and self.history is not None:
                self.tombstones[partition].append(offset)
                self.tombstones_given_up += is_given_up
            elif not is_given_up:
                yield partition, offset, digest_of_record(message.key(), value or b"")


def messages(bootstrap: str, topic: str) -> Iterator[Any]:
    """Yield the committed messages of a topic up to its end now.

    Raises:
        SandboxError: Kafka stopped answering.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "verification",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 3,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        yield from _up_to_the_end(consumer, set(partitions))
    finally:
        consumer.close()


def _up_to_the_end(consumer: Any, open_partitions: set[int]) -> Iterator[Any]:
    heard = time.monotonic()
    while open_partitions:
        # It returns when it has this many, or after the time-out: the end of a partition does not end it.
        for message in consumer.consume(_FETCH_ROWS, timeout=_FETCH_SECONDS):
            heard = time.monotonic()
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise KafkaException(error)
        if time.monotonic() - heard > _SILENCE_SECONDS:
            raise SandboxError(f"Kafka gave nothing for {_SILENCE_SECONDS:.0f} s", found=f"open: {open_partitions}")


def order_rows(
    postgres: Mapping[str, str], topic: str, table: tuple[str, str]
) -> Iterator[tuple[bytes | None, Identity]]:
    """Yield the key and the identity of each row of a table of orders."""
    statement = sql.SQL(
        "SELECT kafka_partition, kafka_offset, order_id, customer, status, amount, currency, ordered_at, note, lines,"
        " tags, customer_key FROM {} WHERE kafka_topic = {}"
    ).format(sql.Identifier(*table), sql.Literal(topic))
    for partition, offset, *columns, key in fetched(postgres, statement):
        order = dict(zip(_COLUMNS, columns, strict=True))
        key_bytes = None if key is None else key.encode()
        yield key_bytes, (partition, offset, _digest(key_bytes, order))


def dead_letter_identities(postgres: Mapping[str, str], topic: str) -> Iterator[Identity]:
    """Yield the identity of each dead letter."""
    statement = sql.SQL('SELECT partition, "offset", key, value FROM kafka_ingest.dead_letter WHERE topic = {}').format(
        sql.Literal(topic)
    )
    for partition, offset, key, value in fetched(postgres, statement):
        yield partition, offset, digest_of_record(None if key is None else bytes(key), bytes(value or b""))


def fetched(postgres: Mapping[str, str], statement: sql.Composed) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query in pieces; numbers in jsonb are exact."""
    connection = psycopg2.connect(**dict[str, Any](postgres))
    try:
        register_default_jsonb(connection, loads=partial(json.loads, parse_float=Decimal))
        # A cursor on the server, so that a large table is not held in memory.
        with connection.cursor(name="verification") as cursor:
            cursor.itersize = _FETCH_ROWS
            cursor.execute(statement)
            yield from cursor
    finally:
        connection.close()


def digest_of_record(key: bytes | None, value: bytes) -> bytes:
    """Return a digest of the key and of an order's content, or of the bytes where they hold no order."""
    try:
        order = json.loads(value, parse_float=Decimal)
        order["amount"] = Decimal(order["amount"])
        order["ordered_at"] = datetime.fromisoformat(order["ordered_at"])
    except (ValueError, KeyError, TypeError, ArithmeticError):
        return hashlib.sha256(_marked(key) + value).digest()
    return _digest(key, order)


def _digest(key: bytes | None, order: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(_marked(key) + json.dumps(order, sort_keys=True, default=_plain).encode()).digest()


def _marked(key: bytes | None) -> bytes:
    """Return the key with its length before it, which tells no key from an empty one and a key from the payload."""
    return b"-" if key is None else f"{len(key)}:".encode() + key


def _plain(value: object) -> str:
    if isinstance(value, Decimal):
        return str(value.normalize())
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(type(value).__name__)
