"""An independent check of a table that holds the current state: a plain consumer folds the whole topic, key by key.

Nothing of the product's reading, decoding or folding is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from psycopg2 import sql

from sandbox.ledger_history import LedgerHistory
from sandbox.verification import dead_letter_identities, digest_of_record, fetched, messages, order_rows

#: numeric(12,2) holds what is smaller.
_TOO_LARGE = Decimal(10**10)


@dataclass(frozen=True, slots=True)
class Change:
    """What a record says of its key; without content the key is deleted."""

    key: Hashable
    content: Hashable | None


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest change of a key, and where its record is."""

    partition: int
    offset: int
    content: Hashable | None


def fold(records: Iterable[Any], change_of: Callable[[Any], Change | None]) -> dict[Hashable, Newest]:
    """Return the newest change of each key, deletes among them: in its partition the one with the greatest offset.

    Args:
        records: Messages as confluent_kafka gives them, in any order.
        change_of: Returns what a message says of a key; ``None``: nothing, as a dead letter does.

    Raises:
        ValueError: A key is in two partitions, between which offsets tell no order.
    """
    newest: dict[Hashable, Newest] = {}
    for record in records:
        change = change_of(record)
        if change is None:
            continue
        found = Newest(record.partition(), record.offset(), change.content)
        standing = newest.get(change.key, found)
        if standing.partition != found.partition:
            raise ValueError(f"{change.key!r} is in partitions {standing.partition} and {found.partition}")
        newest[change.key] = max(standing, found, key=lambda one: one.offset)
    return newest


@dataclass(frozen=True, slots=True)
class StateComparison:
    """What a topic of orders folds to against what is in the database.

    Attributes:
        changes: Records that say something of a key, and that nobody gave up.
        rows: Keys whose newest record is an order.
        removed: Keys whose newest record is a tombstone.
        dead_letters: Records that are dead letters.
        differing: Keys whose row, or entry among the removed keys, is another one, missing, or there without a reason.
        differing_dead_letters: Records that are no dead letters and should be, or the other way round.
        given_up: Records that a position change gave up and nothing loaded.
    """

    changes: int
    rows: int
    removed: int
    dead_letters: int
    differing: int
    differing_dead_letters: int
    given_up: int

    @property
    def is_exact(self) -> bool:
        """Whether every key is as its newest record says, and every dead letter is there."""
        return not (self.differing or self.differing_dead_letters)


def compare_state(
    bootstrap: str, topic: str, postgres: Mapping[str, str], table: tuple[str, str], *, history: LedgerHistory
) -> StateComparison:
    """Compare a topic of orders with the table that holds the newest order of each key, and with the removed keys.

    Args:
        bootstrap: Kafka's address.
        topic: The topic; read whole, up to its end now. Only one pipeline loads it.
        postgres: Keyword arguments for ``psycopg2.connect``.
        table: Schema and name of the target.
        history: What the ledger says of the topic.

    Raises:
        SandboxError: Kafka stopped answering.
    """
    content = _OrderChanges(history)
    newest = fold(messages(bootstrap, topic), content.change_of)
    found: dict[Hashable, Newest] = {key: Newest(*row) for key, row in order_rows(postgres, topic, table)}
    removed = dict(_removed_keys(postgres, topic))
    dead_letters = {(partition, offset) for partition, offset, _ in dead_letter_identities(postgres, topic)}
    expected_rows = {key: one for key, one in newest.items() if one.content is not None}
    expected_removed = {key: one for key, one in newest.items() if one.content is None}
    return StateComparison(
        changes=content.changes,
        rows=len(expected_rows),
        removed=len(expected_removed),
        dead_letters=len(content.dead_letters),
        differing=len(_differing(expected_rows, found) | _differing(expected_removed, removed)),
        differing_dead_letters=len(content.dead_letters ^ dead_letters),
        given_up=content.given_up,
    )


@dataclass(slots=True)
class _OrderChanges:
    """What the messages of a topic of orders say, and those that say nothing of a key."""

    history: LedgerHistory
    changes: int = 0
    given_up: int = 0
    dead_letters: set[tuple[int, int]] = field(default_factory=set)

    def change_of(self, message: Any) -> Change | None:
        where = message.partition(), message.offset()
        key, value = message.key(), message.value()
        if self.history.is_given_up(*where):
            self.given_up += 1
            return None
        if value is not None and (key is None or not _is_order(value)):
            self.dead_letters.add(where)
            return None
        if key is None:
            return None
        self.changes += 1
        return Change(key, None if value is None else digest_of_record(key, value))


def _is_order(value: bytes) -> bool:
    try:
        order = json.loads(value)
    except ValueError:
        return False
    return "order_id" in order and abs(Decimal(order["amount"])) < _TOO_LARGE


def _removed_keys(postgres: Mapping[str, str], topic: str) -> Iterator[tuple[Hashable, Newest]]:
    statement = sql.SQL('SELECT key, partition, "offset" FROM kafka_ingest.removed_key WHERE topic = {}')
    for [key], partition, offset in fetched(postgres, statement.format(sql.Literal(topic))):
        yield key.encode(), Newest(partition, offset, None)


def _differing(expected: Mapping[Hashable, Newest], found: Mapping[Hashable, Newest]) -> set[Hashable]:
    return {key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)}
