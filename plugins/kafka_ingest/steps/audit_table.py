"""Step *audit --all*: count every published range against the table.

In steps: each looks at some batches, the newest first, and each of its statements at a bounded number of offsets, in a
transaction of its own. So it holds nothing for long, needs little memory, and can be stopped at any moment. Loads go on
beside it: what they write meanwhile is not compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from kafka_ingest.core.ports import Violation
from kafka_ingest.core.table_audit import (
    FIRST_OFFSETS,
    TARGET_INVARIANT,
    Piece,
    Segment,
    TableAudit,
    Taken,
    WrittenBatch,
    WrittenTable,
    cut,
)

#: So many violations are listed; the others are only counted. Chosen as for the invariants of the ledger.
_LISTED = 100
#: So many are listed with their first offsets: each is a statement.
_NAMED = 10


def audit_table(table: WrittenTable, tell: Callable[[TableAudit], None]) -> TableAudit:
    """Counts the rows of every published range.

    Args:
        table: Ledger and target.
        tell: Gets the audit so far after every statement.

    Raises:
        TargetMismatch: The table, or a column that identifies rows, is not there.
        RetryLater: PostgreSQL cannot be reached.
    """
    audit = TableAudit(scope := table.scope())
    taken, roll_backs, before = Taken(), deque(scope.roll_backs), scope.newest + 1
    while before > 1 and (batches := table.writers(before)):  # ordinals count from 1
        segments: list[Segment] = []
        for batch in batches:
            while roll_backs and roll_backs[0][0] >= batch.ordinal:
                undone = roll_backs.popleft()[1]
                segments.append(Segment(undone, taken.take(undone.place, undone.start, undone.end)))
            segments += _left(batch, taken, audit)
        _count(segments, audit, table, tell)
        before = batches[-1].ordinal
    return audit


def _left(batch: WrittenBatch, taken: Taken, audit: TableAudit) -> Iterator[Segment]:
    for written in batch.ranges:
        pieces = taken.take(written.place, written.start, written.end)
        audit.ranges += 1
        audit.offsets += written.end - written.start - sum(piece.end - piece.start for piece in pieces)
        yield Segment(written, pieces)


def _count(segments: list[Segment], audit: TableAudit, table: WrittenTable, tell: Callable[[TableAudit], None]) -> None:
    for statement in cut(segments):
        found = table.count([piece for _, piece in statement], audit.scope)
        since = Taken()
        for piece in found.written_since:
            since.take(piece.place, piece.start, piece.end)
        for (segment, piece), counted in zip(statement, found.counted, strict=True):
            segment.rows += counted.rows
            segment.identities += counted.identities
            segment.is_written_since |= since.overlaps(piece)
        audit.offsets += sum(piece.end - piece.start for _, piece in statement)
        tell(audit)
    for segment in segments:
        audit.add(segment)
        if not segment.is_whole and len(audit.violations) < _LISTED:
            audit.violations.append(_violation(segment, table, is_named=len(audit.violations) < _NAMED))


def _violation(segment: Segment, table: WrittenTable, *, is_named: bool) -> Violation:
    place, (least, greatest) = segment.written.place, segment.bounds
    where = f"topic {place.topic}, generation {place.generation}, partition {place.partition}"
    spans = ", ".join(f"[{piece.start}, {piece.end})" for piece in segment.pieces[:FIRST_OFFSETS])
    expected = f"{least}" if least == greatest else f"{least} to {greatest}"
    row = f"{where}, offsets {spans} of {segment.written.by}: {expected} rows, found {segment.rows}"
    numbers = {"missing": segment.missing, "doubled": segment.doubled, "loaded by nobody": segment.beyond}
    row += "".join(f", {number} {what}" for what, number in numbers.items() if number)
    return Violation(TARGET_INVARIANT, row + (_first_offsets(segment, table) if is_named else ""))


def _first_offsets(segment: Segment, table: WrittenTable) -> str:
    doubled: list[int] = []
    absent: list[int] = []
    for piece in _bounded(segment):
        more_doubled, more_absent = table.name(piece)
        doubled += more_doubled
        absent += more_absent
        if len(doubled) >= min(segment.doubled, FIRST_OFFSETS) and len(absent) >= min(segment.missing, FIRST_OFFSETS):
            break
    text = f"; doubled: {_numbers(doubled)}" if segment.doubled else ""
    return text + (f"; without a row or dead letter: {_numbers(absent)}" if segment.missing else "")


def _bounded(segment: Segment) -> Iterator[Piece]:
    for statement in cut([segment]):
        yield from (piece for _, piece in statement)


def _numbers(offsets: list[int]) -> str:
    return ", ".join(map(str, offsets[:FIRST_OFFSETS]))
