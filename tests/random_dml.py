"""Random changes of one table, the same for the same seed: what a capture of changes has to get right in any order.

Few keys are used again and again, so that a key is often inserted, deleted and inserted anew.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

TABLE = "accounts"
#: So few that a deleted key comes back soon.
_KEYS = range(1, 41)
#: A note of this many characters is stored outside of its row: with its storage EXTERNAL, not compressed, beyond 2 kB.
_LONG = 2_500
_MOST_STATEMENTS = 4
_FIRST_TIME = datetime(1969, 12, 31, 23, 0, tzinfo=UTC)
_TEXTS = (
    "",
    " ",
    "plain",
    "it's",
    'say "hi"',
    "a,b",
    "{curly}",
    "back\\slash",
    "NULL",
    "naïve Größe",
    "\N{GRINNING FACE}",
    "1\n2",
)


class Kind(StrEnum):
    """What a statement does; every statement changes exactly one row."""

    INSERT = "insert"
    UPDATE = "update"  # leaves the note alone: when it is stored outside of its row, an event does not hold it
    UPDATE_NOTE = "update note"
    CHANGE_KEY = "change key"  # leaves the note alone
    CHANGE_KEY_AND_NOTE = "change key and note"
    DELETE = "delete"
    REINSERT = "reinsert"  # three statements in one transaction: insert, delete and insert of one key


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of SQL, without parameters, and what it does."""

    kind: Kind
    text: str


def create_table(table: str = TABLE, *, replica_identity: str = "DEFAULT") -> Sequence[str]:
    """Return the statements that make the table."""
    columns = "tenant text, amount numeric(12,2), note text, tags text[], payload jsonb, at timestamptz"
    return (
        f"CREATE TABLE {table} (id bigint PRIMARY KEY, {columns})",
        f"ALTER TABLE {table} ALTER note SET STORAGE EXTERNAL",
        f"ALTER TABLE {table} REPLICA IDENTITY {replica_identity}",
    )


def transactions(seed: int, table: str = TABLE, *, kinds: Sequence[Kind] = tuple(Kind)) -> Iterator[list[Statement]]:
    """Yield the statements of one transaction after another, for ever; the table has to be empty before.

    Args:
        seed: The same seed yields the same statements.
        table: Name of the table.
        kinds: What may happen; inserts happen whatever is given when there is no row to change.
    """
    changes = _Changes(random.Random(seed), table)
    while True:
        count = changes.random.randint(1, _MOST_STATEMENTS)
        yield [statement for _ in range(count) for statement in changes.next(kinds)]


def final_state(connection: Any, table: str = TABLE) -> list[tuple[Any, ...]]:
    """Return the rows of the table by key, as psycopg2 has their values, the payload as its text."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id, tenant, amount, note, tags, payload::text, at FROM {table} ORDER BY id")
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


class _Changes:
    """What is drawn, and the keys that are in the table."""

    def __init__(self, source: random.Random, table: str) -> None:
        self.random = source
        self._table = table
        self._present: set[int] = set()
        self._writes = 0

    def next(self, kinds: Sequence[Kind]) -> list[Statement]:
        """Return the statements of one drawn kind; most have one."""
        possible = [kind for kind in kinds if self._is_possible(kind)]
        kind = self.random.choice(possible or [Kind.INSERT])
        if kind is Kind.INSERT:
            texts = [self._insert(self._absent_key())]
        elif kind is Kind.REINSERT:
            key = self._absent_key()
            texts = [self._insert(key), self._delete(key), self._insert(key)]
        elif kind is Kind.DELETE:
            texts = [self._delete(self._present_key())]
        else:
            texts = [self._update(kind)]
        return [Statement(kind, text) for text in texts]

    def _is_possible(self, kind: Kind) -> bool:
        needs_row = kind not in (Kind.INSERT, Kind.REINSERT)
        needs_key = kind not in (Kind.UPDATE, Kind.UPDATE_NOTE, Kind.DELETE)
        return not (needs_row and not self._present) and not (needs_key and len(self._present) == len(_KEYS))

    def _insert(self, key: int) -> str:
        self._present.add(key)
        columns = {"id": str(key), "note": self._note(), **self._small_columns()}
        return f"INSERT INTO {self._table} ({', '.join(columns)}) VALUES ({', '.join(columns.values())})"

    def _delete(self, key: int) -> str:
        self._present.remove(key)
        return f"DELETE FROM {self._table} WHERE id = {key}"

    def _update(self, kind: Kind) -> str:
        key = self._present_key()
        drawn = self._small_columns()
        columns = {name: drawn[name] for name in self.random.sample(sorted(drawn), self.random.randint(1, len(drawn)))}
        if kind in (Kind.UPDATE_NOTE, Kind.CHANGE_KEY_AND_NOTE):
            columns["note"] = self._note()
        if kind in (Kind.CHANGE_KEY, Kind.CHANGE_KEY_AND_NOTE):
            new = self._absent_key()
            self._present ^= {key, new}
            columns["id"] = str(new)
        assignments = ", ".join(f"{name} = {value}" for name, value in columns.items())
        return f"UPDATE {self._table} SET {assignments} WHERE id = {key}"

    def _present_key(self) -> int:
        return self.random.choice(sorted(self._present))

    def _absent_key(self) -> int:
        return self.random.choice([key for key in _KEYS if key not in self._present])

    def _note(self) -> str:
        """Return a note that no other statement writes, half of them long."""
        self._writes += 1
        short = f"note {self._writes} {self.random.choice(_TEXTS)}"
        if self.random.random() < 0.5:
            return _quoted(short)
        return f"rpad({_quoted(short)}, {_LONG + self.random.randrange(1_000)}, {_quoted(f'<{self._writes}>')})"

    def _small_columns(self) -> dict[str, str]:
        draw = self.random
        amount = str(Decimal(draw.choice((0, 1, -1, 10**12 - 1, draw.randint(-(10**9), 10**9)))).scaleb(-2))
        tags = [draw.choice((None, *_TEXTS)) for _ in range(draw.randint(0, 3))]
        payload = {"n": draw.randint(0, 9), "text": draw.choice(_TEXTS), "list": [None, 1.5, {"deep": True}]}
        at = _FIRST_TIME + timedelta(seconds=draw.randint(0, 2 * 10**9), microseconds=draw.randrange(10**6))
        return {
            "tenant": self._or_null(_quoted(f"tenant {draw.randint(1, 5)}")),
            "amount": self._or_null(amount),
            "tags": self._or_null(_array(tags)),
            "payload": self._or_null(_quoted(json.dumps(payload, ensure_ascii=False))),
            "at": self._or_null(_quoted(at.isoformat())),
        }

    def _or_null(self, value: str) -> str:
        return "NULL" if self.random.random() < 0.1 else value


def _quoted(text: str) -> str:
    # standard_conforming_strings is on: a backslash is a character like others.
    return "'" + text.replace("'", "''") + "'"


def _array(tags: Sequence[str | None]) -> str:
    return f"ARRAY[{', '.join('NULL' if tag is None else _quoted(tag) for tag in tags)}]::text[]"
