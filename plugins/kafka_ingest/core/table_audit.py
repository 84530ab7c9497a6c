"""Auditing the whole table: which batch wrote each offset last, and how many rows it must have left there.

Writers come newest first, so what an earlier one left is what no later one wrote: the offsets that are taken merge into
few intervals, however many ranges there are. A range is known by its counts, not by its records. Where a later writer
has replaced a part of it, the rows of the rest lie between two bounds, which are equal where every record became a row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kafka_ingest.core.ports import Violation

#: The invariant that looks into the target itself, as sql/invariants names it.
TARGET_INVARIANT = "target_rows"
#: How many offsets one statement looks at: half of what a run loads by default, about a second's work.
OFFSETS_A_STATEMENT = 1_000_000
#: How many pieces one statement gets; a piece is some hundred bytes of its text.
PIECES_A_STATEMENT = 2_000
#: How many offsets a message names: enough to look at them.
FIRST_OFFSETS = 5


class Place(NamedTuple):
    """A partition in one generation of its topic."""

    topic: str
    generation: int
    partition: int


@dataclass(frozen=True, slots=True)
class Written:
    """What one batch, or one roll-back, left in ``[start, end)`` when it was done.

    Attributes:
        place: The partition.
        start: First offset.
        end: First offset beyond it.
        rows: Rows that it left there: 0 of a roll-back.
        by: Who, for a message.
        is_given_up: Whether its rows may be gone altogether: before a reset to the log start or a change of table.
    """

    place: Place
    start: int
    end: int
    rows: int
    by: str
    is_given_up: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets ``[start, end)`` that are counted together."""

    place: Place
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Counted:
    """Rows of the table in a piece, and how many offsets have one; equal where no row stands twice."""

    rows: int
    identities: int


@dataclass(frozen=True, slots=True)
class Count:
    """What one statement found, and what was written since the audit began, both at one moment."""

    counted: Sequence[Counted]
    written_since: Sequence[Piece]


class Taken:
    """Offsets that later writers have written, as few intervals of each partition."""

    def __init__(self) -> None:
        self._starts: dict[Place, list[int]] = {}
        self._ends: dict[Place, list[int]] = {}

    def take(self, place: Place, start: int, end: int) -> list[Piece]:
        """Takes ``[start, end)``; gives the parts of it that were free, in order."""
        starts, ends = self._starts.setdefault(place, []), self._ends.setdefault(place, [])
        first, beyond = bisect_left(ends, start), bisect_right(starts, end)
        free, at = [], start
        for taken_start, taken_end in zip(starts[first:beyond], ends[first:beyond], strict=True):
            if at < taken_start:
                free.append(Piece(place, at, min(taken_start, end)))
            at = max(at, taken_end)
        if at < end:
            free.append(Piece(place, at, end))
        merged = (min([start, *starts[first:beyond]]), max([end, *ends[first:beyond]]))
        starts[first:beyond], ends[first:beyond] = [merged[0]], [merged[1]]
        return free

    def overlaps(self, piece: Piece) -> bool:
        """Whether something of the piece is taken."""
        ends = self._ends.get(piece.place, [])
        at = bisect_right(ends, piece.start)
        return at < len(ends) and self._starts[piece.place][at] < piece.end


@dataclass(slots=True)
class Segment:
    """What is left of a :class:`Written`: the pieces that nobody wrote later, and what was found in them."""

    written: Written
    pieces: Sequence[Piece]
    rows: int = 0
    identities: int = 0
    is_written_since: bool = False

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest number of rows that may be there."""
        written, left = self.written, sum(piece.end - piece.start for piece in self.pieces)
        without_row = written.end - written.start - written.rows
        return 0 if written.is_given_up else max(0, left - without_row), min(left, written.rows)

    @property
    def doubled(self) -> int:
        """Rows beyond the first of their offset."""
        return self.rows - self.identities

    @property
    def missing(self) -> int:
        """Rows that must be there and are not; 0 where somebody wrote meanwhile."""
        return 0 if self.is_written_since else max(0, self.bounds[0] - self.identities)

    @property
    def beyond(self) -> int:
        """Offsets with a row that nobody has loaded."""
        return 0 if self.is_written_since else max(0, self.identities - self.bounds[1])

    @property
    def is_whole(self) -> bool:
        """Whether it has what it must have."""
        return not (self.doubled or self.missing or self.beyond)


def cut(segments: Iterable[Segment], offsets: int = OFFSETS_A_STATEMENT) -> Iterator[list[tuple[Segment, Piece]]]:
    """Cuts segments into statements: each of so many offsets and so many pieces at most, in the order of the table."""
    pieces = [(segment, piece) for segment in segments for piece in segment.pieces]
    statement: list[tuple[Segment, Piece]] = []
    room = offsets
    for segment, piece in sorted(pieces, key=lambda pair: (pair[1].place, pair[1].start)):
        start = piece.start
        while start < piece.end:
            end = min(piece.end, start + room)
            statement.append((segment, Piece(piece.place, start, end)))
            room, start = room - (end - start), end
            if not room or len(statement) == PIECES_A_STATEMENT:
                yield statement
                statement, room = [], offsets
    if statement:
        yield statement


@dataclass(frozen=True, slots=True)
class AuditScope:
    """What an audit of the whole table begins with.

    Attributes:
        newest: Ordinal of the newest batch that has published; 0 when there is none.
        newest_change: Number of the newest position change.
        ranges: How many ranges were published into it.
        offsets: How many offsets they have.
        elsewhere: How many ranges were published into tables that the pipeline was bound to at other times.
        roll_backs: Spans that roll-backs have emptied, the newest first, each with the ordinal of the newest batch
            that was recorded before it.
    """

    newest: int
    newest_change: int
    ranges: int
    offsets: int
    elsewhere: int
    roll_backs: Sequence[tuple[int, Written]] = ()


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A batch that has published, with what it left in each of its ranges."""

    ordinal: int
    ranges: Sequence[Written]


class WrittenTable(Protocol):
    """Ledger and target as an audit of all of it asks them, each method one short read-only transaction."""

    def scope(self) -> AuditScope:
        """Says what there is."""

    def writers(self, before: int) -> Sequence[WrittenBatch]:
        """Gives some batches below an ordinal that have published into the table, the newest first; none at the end."""

    def count(self, pieces: Sequence[Piece], scope: AuditScope) -> Count:
        """Counts rows in pieces, which are in the order of the table and do not overlap.

        Raises:
            TargetMismatch: The table, or a column that identifies rows, is not there.
        """

    def name(self, piece: Piece) -> tuple[Sequence[int], Sequence[int]]:
        """Gives the first offsets that stand twice, and the first that have neither row nor dead letter."""


@dataclass(slots=True)
class TableAudit:
    """What an audit of the whole table has looked at and found so far.

    Attributes:
        scope: What there was when it began.
        ranges: Ranges that were looked at.
        offsets: Offsets that were counted, or that a later batch has replaced.
        rows: Rows that were counted.
        within_bounds: Ranges of which a later batch has replaced a part, whose rows are known only within bounds.
        given_up: Ranges whose rows may be gone: only rows that stand twice were looked for.
        written_since: Ranges that somebody wrote meanwhile.
        missing: Rows that are missing.
        doubled: Rows that stand a second time.
        beyond: Offsets with a row that nobody has loaded.
        faulty: Ranges with one of these.
        violations: The first of them.
    """

    scope: AuditScope
    ranges: int = 0
    offsets: int = 0
    rows: int = 0
    within_bounds: int = 0
    given_up: int = 0
    written_since: int = 0
    missing: int = 0
    doubled: int = 0
    beyond: int = 0
    faulty: int = 0
    violations: list[Violation] = field(default_factory=list)

    def add(self, segment: Segment) -> None:
        """Adds what was found in one segment."""
        if not segment.pieces:
            return
        least, greatest = segment.bounds
        self.rows += segment.rows
        self.within_bounds += least != greatest and not segment.written.is_given_up
        self.given_up += segment.written.is_given_up
        self.written_since += segment.is_written_since
        self.missing += segment.missing
        self.doubled += segment.doubled
        self.beyond += segment.beyond
        self.faulty += not segment.is_whole
