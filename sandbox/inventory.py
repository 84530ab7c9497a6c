"""Items of the made-up shop as a connector tells of their changes, and the state of its table at the end.

The events have the form that Debezium's PostgreSQL connector gives them, values that do not travel among them.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from psycopg2 import sql

from sandbox.orders import SentRecord
from sandbox.verification import fetched

_UNAVAILABLE = "__debezium_unavailable_value"
_FIRST_MADE = datetime(2026, 1, 1, 0, 0, 0, 123_456, UTC)
_EPOCH = date(1970, 1, 1)
_TAGS = ("red", "fragile", 'a "b"', "🎁", None)


@dataclass(frozen=True, slots=True)
class Item:
    """A row of the shop's table ``items``; an update that leaves ``doc`` alone does not tell it, as of large values."""

    item_id: int
    name: str
    doc: str
    price: Decimal
    made_at: datetime
    photo: bytes
    tags: tuple[str | None, ...]


@dataclass(slots=True)
class Inventory:
    """The shop's table, and what a connector writes of its changes. The same seed gives the same changes.

    Attributes:
        rows: Each row by its key, with the position of its last change in the source's log.
    """

    seed: int
    rows: dict[int, tuple[Item, int]] = field(default_factory=dict)
    _lsn: int = 1_000
    _next_id: int = 0

    def events(self, snapshot: int, changes: int) -> Iterator[SentRecord]:
        """Yield the rows that are there at the beginning, then inserts, updates, deletes and changed keys."""
        draw = random.Random(self.seed)  # noqa: S311 - made-up data
        for _ in range(snapshot):
            yield self._written("r", self._item(draw))
        for _ in range(changes):
            yield from self._change(draw)

    def _change(self, draw: random.Random) -> Iterator[SentRecord]:
        kind = draw.random()
        if kind < 0.1 or not self.rows:
            yield self._written("c", self._item(draw))
            return
        key = draw.randrange(self._next_id)
        while key not in self.rows:
            key = draw.randrange(self._next_id)
        before, _ = self.rows[key]
        if kind < 0.8:
            other = self._item(draw, key=key)
            keeps_doc = kind < 0.6
            yield self._written("u", replace(other, doc=before.doc) if keeps_doc else other, is_doc_told=not keeps_doc)
            return
        yield from self._deleted(key)
        if kind > 0.95:
            yield self._written("c", replace(before, item_id=self._new_key()))

    def _item(self, draw: random.Random, *, key: int | None = None) -> Item:
        number = self._new_key() if key is None else key
        return Item(
            item_id=number,
            name=f"item {number} of {draw.choice(('Zürich', 'Łódź', 'Århus'))}",
            doc=json.dumps({"size": draw.randrange(100), "note": "x" * draw.randrange(50)}),
            price=Decimal(draw.randrange(10_000_000)).scaleb(-3),
            made_at=_FIRST_MADE + timedelta(seconds=draw.randrange(10**8)),
            photo=draw.randbytes(draw.randrange(12)),
            tags=tuple(draw.choice(_TAGS) for _ in range(draw.randrange(3))),
        )

    def _new_key(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _written(self, op: str, item: Item, *, is_doc_told: bool = True) -> SentRecord:
        self._lsn += 8
        self.rows[item.item_id] = item, self._lsn
        after = {
            "id": item.item_id,
            "name": item.name,
            "doc": item.doc if is_doc_told else _UNAVAILABLE,
            "price": str(item.price),
            "at": f"{item.made_at:%Y-%m-%dT%H:%M:%S.%f}Z",
            "day": (item.made_at.date() - _EPOCH).days,
            "raw": base64.b64encode(item.photo).decode(),
            "tags": item.tags,
        }
        return self._event(op, item.item_id, after)

    def _deleted(self, key: int) -> Iterator[SentRecord]:
        """Yield the delete and the tombstone behind it."""
        del self.rows[key]
        self._lsn += 8
        yield self._event("d", key, None)
        yield SentRecord(_key(key), None)

    def _event(self, op: str, key: int, after: Mapping[str, Any] | None) -> SentRecord:
        before = {"id": key} if op == "d" else None
        event = {"before": before, "after": after, "source": {"lsn": self._lsn, "table": "items"}, "op": op}
        return SentRecord(_key(key), json.dumps(event, ensure_ascii=False).encode())


def _key(key: int) -> bytes:
    return json.dumps({"id": key}).encode()


@dataclass(frozen=True, slots=True)
class InventoryComparison:
    """The shop's table at the end against the table that its events were loaded into.

    Attributes:
        events: Records that were sent.
        rows: Rows of the shop's table.
        differing: Rows that differ, are missing, or are there and should not be.
    """

    events: int
    rows: int
    differing: int

    @property
    def is_exact(self) -> bool:
        """Whether the tables are equal, value by value."""
        return self.differing == 0


def compare_inventory(
    inventory: Inventory, events: int, postgres: Mapping[str, str], table: tuple[str, str]
) -> InventoryComparison:
    """Compare the state of the source's table with a table, value by value."""
    statement = sql.SQL("SELECT id, name, doc, price, made_at, made_on, photo, tags, source_lsn FROM {}").format(
        sql.Identifier(*table)
    )
    found = {key: _comparable(*row) for key, *row in fetched(postgres, statement)}
    expected = {key: _expected(item, lsn) for key, (item, lsn) in inventory.rows.items()}
    differing = sum(expected.get(key) != found.get(key) for key in expected.keys() | found.keys())
    return InventoryComparison(events, len(expected), differing)


def _expected(item: Item, lsn: int) -> tuple[Any, ...]:
    made_on = item.made_at.date()
    return item.name, json.loads(item.doc), item.price, item.made_at, made_on, item.photo, list(item.tags), lsn


def _comparable(*row: Any) -> tuple[Any, ...]:
    name, doc, price, made_at, made_on, photo, tags, lsn = row
    return name, doc, price, made_at, made_on, bytes(photo), tags, lsn
