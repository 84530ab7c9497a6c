"""Progress of a run, as a number in [0, 1): the unit for the moments of faults.

A run passes through pieces of unequal length. Each gets a fixed share of the number, so a random moment falls into the
short ones, where the protocol is, as often as into the long start of a process. Within a piece the number follows the
staged bytes, or the time that the piece took in earlier runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import psycopg2


class Piece(StrEnum):
    """Pieces of a run, in order."""

    PLAN = "plan"  #: until the batch is in the ledger
    START = "start"  #: until the job has claimed it
    OPEN = "open"  #: until the first row is in staging
    STAGE = "stage"  #: until all are
    PUBLISH = "publish"  #: until COMMIT
    END = "end"  #: until the process has ended


_BEGINS: Mapping[Piece, float] = {
    Piece.PLAN: 0.0,
    Piece.START: 0.15,
    Piece.OPEN: 0.30,
    Piece.STAGE: 0.45,
    Piece.PUBLISH: 0.70,
    Piece.END: 0.90,
}
_ENDS: Mapping[Piece, float] = dict(zip(_BEGINS, [*list(_BEGINS.values())[1:], 1.0], strict=True))
_ALMOST = 0.99  # a piece that takes longer than usual counts as not yet over
_LEARN = 0.3  # weight of the newest run in the usual values

# The size of a table grows while COPY runs; its rows are visible only after the task's commit.
_SIGHT = """
    SELECT b.batch_id::text, b.state, b.claim,
           (SELECT coalesce(sum(p.range_end - p.range_start), 0)::bigint
              FROM kafka_ingest.batch_partition p WHERE p.batch_id = b.batch_id),
           coalesce((SELECT pg_relation_size(c.oid)
                       FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                      WHERE n.nspname = 'kafka_ingest_staging'
                        AND c.relname = 'b' || replace(b.batch_id::text, '-', '') || '_c' || b.claim || '_rows'), 0),
           EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'kafka_ingest publish')
      FROM kafka_ingest.batch b
     WHERE b.dag_id = %s AND b.run_id = %s
     ORDER BY b.ordinal DESC LIMIT 1
"""

_CHANGES = """
    SELECT EXISTS (SELECT FROM pg_stat_activity
                    WHERE application_name IN ('kafka_ingest change', 'kafka_ingest roll-back'))
"""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the ledger says about a run's newest batch at one moment."""

    batch_id: str
    state: str
    claim: int
    offsets: int
    staged_bytes: int
    is_publishing: bool


@dataclass(slots=True)
class Usual:
    """The usual values from earlier runs of a kind: seconds by piece, and staged bytes for an offset."""

    seconds: dict[Piece, float] = field(default_factory=lambda: dict.fromkeys(Piece, 1.0))
    bytes_per_offset: float = 250.0

    def learn_seconds(self, piece: Piece, seconds: float) -> None:
        """Learn how long a piece took."""
        self.seconds[piece] += _LEARN * (max(seconds, 0.02) - self.seconds[piece])

    def learn_bytes(self, staged_bytes: int, offsets: int) -> None:
        """Learn how much a batch had staged in all."""
        if staged_bytes and offsets:
            self.bytes_per_offset += _LEARN * (staged_bytes / offsets - self.bytes_per_offset)


class Progress:
    """The progress of one attempt. It never goes back.

    Args:
        usual: What is usual for runs of this kind; it learns from this one.
        before: The last sighting before this attempt began: an older claim is not this attempt's.
        clock: Returns seconds.
    """

    def __init__(
        self, usual: Usual, before: Sighting | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._usual = usual
        self._before = before
        self._clock = clock
        self._piece, self._entered = Piece.PLAN, clock()
        self._staged_bytes = 0
        self.value = 0.0

    def take_in(self, sighting: Sighting | None) -> float:
        """Add a sighting (``None``: nothing, or nobody answered) and return the progress."""
        if sighting is not None:
            self._enter(self._piece_of(sighting))
            self._staged_bytes = max(self._staged_bytes, sighting.staged_bytes)
            if self._piece is Piece.END:
                self._usual.learn_bytes(self._staged_bytes, sighting.offsets)
        begin, end = _BEGINS[self._piece], _ENDS[self._piece]
        self.value = max(self.value, begin + (end - begin) * min(self._share(sighting), _ALMOST))
        return self.value

    def _piece_of(self, sighting: Sighting) -> Piece:
        if sighting.state == "committed":
            return Piece.END
        is_same = self._before is not None and self._before.batch_id == sighting.batch_id
        if sighting.claim <= (self._before.claim if is_same and self._before is not None else 0):
            return Piece.START
        if sighting.is_publishing:
            return Piece.PUBLISH
        return Piece.STAGE if sighting.staged_bytes else Piece.OPEN

    def _enter(self, piece: Piece) -> None:
        order = list(Piece)
        if order.index(piece) <= order.index(self._piece):
            return
        now = self._clock()
        self._usual.learn_seconds(self._piece, now - self._entered)
        self._piece, self._entered = piece, now

    def _share(self, sighting: Sighting | None) -> float:
        if self._piece is Piece.STAGE and sighting is not None:
            return sighting.staged_bytes / (max(sighting.offsets, 1) * self._usual.bytes_per_offset)
        return (self._clock() - self._entered) / self._usual.seconds[self._piece]


class Watcher:
    """A reader of the ledger, many times a second; while the database is away there is nothing to see, and no fault."""

    def __init__(self, warehouse: Callable[[], Mapping[str, Any]]) -> None:
        self._warehouse = warehouse
        self._connection: Any = None

    def look(self, dag_id: str, run_id: str) -> Sighting | None:
        """Return the newest batch of a run, ``None`` when there is none or nobody answers."""
        row = self._row(_SIGHT, (dag_id, run_id))
        return Sighting(*row) if row else None

    def rows(self) -> int | None:
        """Return how many rows are published in all, ``None`` when nobody answers."""
        row = self._row("SELECT coalesce(sum(rows), 0)::bigint FROM kafka_ingest.batch WHERE state = 'committed'", ())
        return int(row[0]) if row else None

    def positions(self) -> Mapping[int, int] | None:
        """Return the committed offset of each partition, ``None`` when nobody answers."""
        row = self._row("SELECT json_object_agg(partition, committed_offset) FROM kafka_ingest.committed_offset", ())
        return {int(partition): offset for partition, offset in (row[0] or {}).items()} if row else None

    def sees_change(self) -> bool:
        """Tell whether a position change or a roll-back is connected to the ledger."""
        row = self._row(_CHANGES, ())
        return row is not None and bool(row[0])

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _row(self, query: str, values: tuple[str, ...]) -> tuple[Any, ...] | None:
        try:
            if self._connection is None:
                self._connection = psycopg2.connect(**self._warehouse(), connect_timeout=2)
                self._connection.autocommit = True
            with self._connection.cursor() as cursor:
                cursor.execute(query, values)
                row: tuple[Any, ...] | None = cursor.fetchone()
                return row
        except (psycopg2.OperationalError, psycopg2.InterfaceError, psycopg2.errors.UndefinedTable):
            self.close()
            return None
