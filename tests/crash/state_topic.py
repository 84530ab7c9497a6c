"""A topic of changes of a few keys: written, altered, removed and written again, in two partitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from sandbox.state_verification import Change, Newest, fold
from sandbox.verification import messages
from tests.deadlines import until
from tests.services import KAFKA_SECONDS

PARTITIONS = 2
#: Of each partition, markers of transactions among them.
OFFSETS = 28
#: The first offset above those that :meth:`StateTopic.without_the_first_records` takes away.
LOG_START = 2

#: Key, and what the record says; ``None`` is a tombstone.
Sent = tuple[str | None, Mapping[str, Any] | bytes | None]
Table = dict[Any, Newest]


@dataclass(frozen=True)
class State:
    """What the database must hold: rows and removed keys by key, and partition and offset of dead letters."""

    rows: Table
    removed: Table
    dead_letters: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class StateTopic:
    """What a plain consumer found.

    Attributes:
        name: The topic.
        records: All readable messages, as confluent_kafka gives them.
    """

    name: str
    records: Sequence[Any]

    def folded(self, positions: Mapping[int, int], note: str = "note") -> State:
        """Return what the records below the positions make, where rows take their notes from this member."""
        below = [record for record in self.records if record.offset() < positions.get(record.partition(), 0)]
        newest = fold(below, lambda record: change_of(record, note))
        return State(
            rows={key: one for key, one in newest.items() if one.content is not None},
            removed={key: one for key, one in newest.items() if one.content is None},
            dead_letters=frozenset((r.partition(), r.offset()) for r in below if is_dead_letter(r, note)),
        )

    def without_the_first_records(self, bootstrap: str) -> StateTopic:
        """Let the broker delete what lies below :data:`LOG_START`."""
        starts = [TopicPartition(self.name, number, LOG_START) for number in range(PARTITIONS)]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for deleted in admin.delete_records(starts).values():
            deleted.result(KAFKA_SECONDS)
        return StateTopic(self.name, [record for record in self.records if record.offset() >= LOG_START])


def change_of(record: Any, note: str = "note") -> Change | None:
    """Return what a record says of its key, as the pipeline of these tests reads it."""
    if record.key() is None:
        return None
    key = json.loads(record.key())["id"]
    if record.value() is None:
        return Change(key, None)
    value = parsed(record.value())
    if value is not None and value.get("gone"):
        return Change(key, None)
    return None if is_dead_letter(record, note) else Change(key, parsed(record.value())[note])


def is_dead_letter(record: Any, note: str) -> bool:
    """Tell whether a record has a value that makes neither row nor delete."""
    if record.value() is None:
        return False
    value = parsed(record.value())
    is_delete = value is not None and value.get("gone")
    return record.key() is None or value is None or not (is_delete or isinstance(value[note], int))


def parsed(value: bytes) -> Any:
    """Return the document, or ``None`` where it is cut."""
    try:
        return json.loads(value)
    except ValueError:
        return None


def produce_changes(bootstrap: str, producer: Callable[..., Any], topic: str) -> None:
    """Write to each partition the changes of its own keys, in :data:`OFFSETS` offsets.

    Keys are inserted, altered, removed by tombstones and by ``gone``, and inserted again, within one run and across
    runs; a transaction of changes is committed, others are aborted, the last of them at the very end. The first two
    offsets hold the only records of two keys: one that stays, and one that was removed.
    """
    plain = producer()
    _send(plain, topic, [("old", put(1)), ("never", None)])
    _send(plain, topic, [("a", put(2)), ("b", put(3)), ("c", put(4)), ("b", put(5)), ("a", None), ("c", b'{"note": 6')])
    _send(plain, topic, [("a", put(7))])
    transactional = producer(transactional_id=f"{topic}-writer")
    transactional.init_transactions()
    _in_transaction(bootstrap, transactional, topic, [("b", put(8)), ("c", None), ("d", put(9))], is_aborted=True)
    _in_transaction(
        bootstrap, transactional, topic, [("c", put(10)), ("d", put(11)), ("b", gone(12))], is_aborted=False
    )
    _send(
        plain, topic, [("b", put(13)), ("d", None), (None, put(14)), ("c", put(15)), (None, None), ("c", gone("many"))]
    )
    _send(plain, topic, [("a", {"note": "many", "second": 17, "gone": False}), ("d", put(18)), ("d", put(19))])
    _in_transaction(bootstrap, transactional, topic, [("a", None)], is_aborted=True)


def put(note: int) -> Mapping[str, Any]:
    """Return a row's value; both members that notes come from are sound."""
    return {"note": note, "second": note + 1000, "gone": False}


def gone(note: object) -> Mapping[str, Any]:
    """Return the value of a delete, whose other members do not matter."""
    return {"note": note, "second": note, "gone": True}


def read_changes(bootstrap: str, topic: str) -> StateTopic:
    """Read a topic with a plain consumer, ``read_committed``."""
    return StateTopic(topic, list(messages(bootstrap, topic)))


def _in_transaction(bootstrap: str, producer: Any, topic: str, changes: Sequence[Sent], *, is_aborted: bool) -> None:
    producer.begin_transaction()
    _send(producer, topic, changes)
    if is_aborted:
        producer.abort_transaction()
    else:
        producer.commit_transaction()
    # A commit returns before its markers are written: what is sent after them would have other offsets.
    until(lambda: _ends(bootstrap, topic, False) == _ends(bootstrap, topic, True), "the transaction has its markers")


def _ends(bootstrap: str, topic: str, is_committed: bool) -> list[int]:
    level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
    wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its answers do not come without it
    answers = admin.list_offsets(wanted, isolation_level=level)
    return [answers[place].result(KAFKA_SECONDS).offset for place in sorted(answers, key=lambda one: one.partition)]


def _send(producer: Any, topic: str, changes: Sequence[Sent]) -> None:
    for key, content in changes:
        value = content if content is None or isinstance(content, bytes) else json.dumps(content)
        for partition in range(PARTITIONS):
            name = None if key is None else json.dumps({"id": f"{key}{partition}"})
            producer.produce(topic, key=name, value=value, partition=partition)
    assert producer.flush(KAFKA_SECONDS) == 0
