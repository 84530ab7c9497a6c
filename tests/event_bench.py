"""A pipeline of change events over a log in memory, and the table that a reader of all of them would make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_ingest.settings import Deletes, Unavailable
from tests.change_events import events_settings
from tests.state_bench import TOPIC, StateBench

PLACEHOLDER = "__debezium_unavailable_value"
#: A value that a column of numbers refuses, so that its record is a dead letter.
BAD = "no number"


@dataclass(frozen=True)
class Event:
    """One event: ``op`` (empty: a tombstone), the key, and the columns ``note`` (a number), ``big`` and ``doc``."""

    op: str
    key: str
    note: int | str | None = None
    big: str | None = None
    doc: str | None = None

    @property
    def values(self) -> dict[str, Any]:
        return {"note": self.note, "big": self.big, "doc": self.doc}

    @property
    def apart(self) -> set[str]:
        """The columns whose values did not travel."""
        return {name for name, value in self.values.items() if value == PLACEHOLDER}


class EventBench(StateBench):
    """A table of keys with three columns, and what was sent.

    Args:
        params: The database.
        deletes: What a delete does.
        unavailable: What becomes of a value that nobody knows.
        partitions: Partitions of the topic.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        deletes: Deletes = Deletes.REMOVE,
        unavailable: Unavailable = Unavailable.DEAD_LETTER,
        *,
        partitions: int = 1,
        target: str = "",
        columns: tuple[str, ...] = (
            "{name: note, type: bigint}",
            "{name: big, type: text}",
            "{name: doc, type: jsonb}",
        ),
    ) -> None:
        settings = events_settings(
            *columns,
            value=f"envelope: debezium, unavailable: {unavailable.value}",
            target=f"truncate: ignore, deletes: {deletes.value}{target}",
        )
        super().__init__(params, lambda _: settings, partitions)
        self.events: dict[tuple[int, int], Event] = {}
        self._deletes, self._unavailable = deletes, unavailable

    def event(self, event: Event, partition: int = 0) -> int:
        """Add a record to the log; return its offset."""
        offset = self.log.topics[TOPIC].partitions[partition].high_watermark
        self.events[partition, offset] = event
        value = None
        if event.op:
            value = {"op": event.op, "before": None, "after": None if event.op == "d" else event.values}
        self.send({"id": int(event.key)}, value, partition)
        return offset

    def key_of(self, identity: tuple[int, int]) -> str:
        return self.events[identity].key

    def rows(self) -> dict[str, tuple[Any, ...]]:
        """Return the columns, partition, offset, and whether it is marked, of each row by key."""
        marked = "deleted_at IS NOT NULL" if self._deletes is Deletes.MARK else "false"
        found = self.query(
            f"SELECT id::text, note, big, doc #>> '{{}}', kafka_partition, kafka_offset, {marked} FROM shop.orders"
        )
        return {key: tuple(rest) for key, *rest in found}

    def expected(self) -> dict[str, tuple[Any, ...]]:
        """Follow every event that was read, in the order of versions: what the table must be."""
        rows: dict[str, tuple[Any, ...]] = {}
        known: dict[str, dict[str, Any]] = {}
        out = self.discarded()
        for identity in sorted(self.seen.keys() - out):
            event = self.events[identity]
            if event.op in ("d", ""):
                if self._deletes is not Deletes.IGNORE:
                    last = rows.pop(event.key, (None, None, None))
                    known.pop(event.key, None)
                    if self._deletes is Deletes.MARK:
                        rows[event.key] = (*last[:3], *identity, True)
                continue
            values = self._values(event, known.get(event.key))
            if values is not None:
                known[event.key] = values
                rows[event.key] = (*values.values(), *identity, False)
        return rows

    def _values(self, event: Event, known: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return what the row is after an event; ``None`` where the event is a dead letter."""
        if event.note == BAD:
            return None
        before = None if event.op in ("c", "r") else known
        if event.apart and before is None:
            if self._unavailable is Unavailable.DEAD_LETTER:
                return None
            before = {}
        return {name: (before or {}).get(name) if name in event.apart else v for name, v in event.values.items()}
