"""Step *audit*: check the invariants, announce the batch, mirror its offsets; count the whole table."""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_ingest.errors import AccountingMismatch, BatchNotCommitted, DatabaseUnavailable, IngestError
from kafka_ingest.protocol.batch import Batch, BatchState, Request
from kafka_ingest.protocol.ledger_view import TARGET_INVARIANT, PlanView, Violation, retired_topics
from kafka_ingest.protocol.ports import (
    AuditScope,
    GroupMirror,
    Ledger,
    Piece,
    Place,
    Written,
    WrittenBatch,
    WrittenTable,
)
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import PipelineSettings

# ----------
# Auditing the whole table: which batch wrote each offset last, and how many rows it must have left there.
#
# Writers come newest first, so an earlier one left what no later one wrote: the offsets that are taken merge into few
# intervals, however many ranges there are. A range is known by its counts, not by its records. Where a later writer has
# replaced a part of a range, the number of the other rows lies between two bounds, which are equal where every record
# became a row.

#: A statement looks at this many offsets: half of what a run loads by default, about a second's work.
OFFSETS_A_STATEMENT = 1_000_000
#: A statement gets this many pieces; a piece takes some hundred bytes of its text.
PIECES_A_STATEMENT = 2_000
#: A message names this many offsets: enough to look at them.
FIRST_OFFSETS = 5


class Taken:
    """Offsets that later writers have written, as few intervals a partition."""

    def __init__(self) -> None:
        self._starts: dict[Place, list[int]] = {}
        self._ends: dict[Place, list[int]] = {}

    def take(self, place: Place, start: int, end: int) -> list[Piece]:
        """Take ``[start, end)``; return the parts of it that were free, in order."""
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
        """Tell whether a part of the piece is taken."""
        ends = self._ends.get(piece.place, [])
        at = bisect_right(ends, piece.start)
        return at < len(ends) and self._starts[piece.place][at] < piece.end


@dataclass(slots=True)
class Segment:
    """The pieces of a :class:`Written` that nobody wrote later, and what was found in them."""

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
        """Offsets that have a row although nobody loaded them."""
        return 0 if self.is_written_since else max(0, self.identities - self.bounds[1])

    @property
    def is_whole(self) -> bool:
        """Whether it has all that it must have, and no more."""
        return not (self.doubled or self.missing or self.beyond)


def cut(segments: Iterable[Segment], offsets: int = OFFSETS_A_STATEMENT) -> Iterator[list[tuple[Segment, Piece]]]:
    """Cut segments into statements, in the order of the table, each within the limits of offsets and of pieces."""
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


@dataclass(slots=True)
class TableAudit:
    """What an audit of the whole table has found so far.

    Attributes:
        scope: What there was when it began.
        ranges: Ranges that were checked.
        offsets: Offsets that were counted, or that a later batch has replaced.
        rows: Rows that were counted.
        within_bounds: Ranges of which a later batch has replaced a part, whose rows are known only within bounds.
        given_up: Ranges whose rows may be gone: the audit looked only for doubled rows.
        written_since: Ranges that somebody wrote during the audit.
        missing: Rows that are missing.
        doubled: Rows beyond the first of their offset.
        beyond: Offsets that have a row although nobody loaded them.
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
        """Add what was found in one segment."""
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


# ----------
# Step *mirror*: copy the position to a Kafka consumer group, where lag tools look.
#
# The position is in the ledger; nothing ever reads the group, and a failure is a warning.

_log = logging.getLogger(__name__)


def group_of(pipeline: str) -> str:
    """Return the name of a pipeline's consumer group."""
    return f"kafka_ingest.{pipeline}"


def mirror_group(
    settings: PipelineSettings, read_view: Callable[[], PlanView | None], open_mirror: Callable[[], GroupMirror]
) -> bool:
    """Copy the committed offsets of all topics that are not retired.

    They are those of this moment, not of the run's own batch: another may have moved the position since. Runs that end
    at the same time may store them in any order; the next run mends it.

    Args:
        settings: The pipeline; without ``mirror_group`` nothing happens.
        read_view: Gives the ledger as it stands, or as it was read just now; ``None`` where it could not be read.
        open_mirror: Gives access to the groups; an unusable connection is a warning, too.

    Returns:
        Whether the group now has the position.
    """
    if not settings.watch.mirror_group:
        return False
    try:
        if (view := read_view()) is None:
            raise DatabaseUnavailable("the ledger could not be read")
        open_mirror().store(group_of(settings.pipeline), _offsets(view))
    except IngestError as error:
        _log.warning("The position was not copied to consumer group %s: %s", group_of(settings.pipeline), error)
        return False
    return True


def _offsets(view: PlanView) -> Mapping[TopicPartition, int]:
    retired = retired_topics(view)
    return {p.topic_partition: p.committed_offset for p in view.positions if p.topic not in retired}


# ----------
# Step *audit*: check the invariants, and choose the committed batches to announce.


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The audited batch and all batches that this request announces: its own first, then those of dead runs."""

    batch: Batch
    announced: tuple[Batch, ...]

    @property
    def has_news(self) -> bool:
        """Whether one of the batches loaded something; an empty batch changes nothing for a consumer."""
        return any(batch.ranges for batch in self.announced)


def audit_batch(batch_id: str, request: Request, ledger: Ledger) -> AuditReport:
    """Check every invariant of the pipeline, and choose the batches that this request announces.

    Nothing is stored: :func:`record_announcement` does so after the announcement and not before, since a run that dies
    in between must leave the batches to the next one. So announcing is at least once; consumers tell by batch id.

    Args:
        batch_id: The request's batch.
        request: Who asks.
        ledger: The ledger.

    Raises:
        BatchNotCommitted: There is nothing to audit.
        AccountingMismatch: Lists the invariants that do not hold.
    """
    batch = ledger.batch(batch_id)
    if batch is None or batch.state is not BatchState.COMMITTED:
        raise BatchNotCommitted(
            "the batch to audit is not committed",
            expected="state committed",
            found=f"state {batch.state.value}" if batch else "no such batch in the ledger",
            next_command="clear load_batch of this run (Airflow: task load_batch, Clear)",
            batch_id=batch_id,
        )
    require_invariants(batch.pipeline, ledger.violations(batch.pipeline))
    others = [b for b in ledger.unannounced(batch.pipeline, request) if b.batch_id != batch_id]
    return AuditReport(batch, (batch, *others))


def record_announcement(report: AuditReport, ledger: Ledger) -> None:
    """Store that the batches of a report were announced: consumers know of them, or need not.

    Durable on return. A batch without ranges counts, too: it needs no announcement, and no later audit reads it.
    """
    ledger.mark_announced([b.batch_id for b in report.announced], report.batch.request)


def require_invariants(pipeline: str, violations: Sequence[Violation]) -> None:
    """Stop when an invariant returned rows.

    Raises:
        AccountingMismatch: Lists them, the first ten rows at most.
    """
    if violations:
        raise AccountingMismatch(
            "invariants of the ledger do not hold",
            expected="no rows from any query in sql/invariants",
            found="".join(f"\n    {v.invariant}: {v.row}" for v in violations[:10]),
            pipeline=pipeline,
        )


# ----------
# Step *audit --all*: count every published range against the table.
#
# Each step reads some batches, newest first, and each of its statements at a limited number of offsets, in a
# transaction of its own. So it holds no lock for long, needs little memory, and can be stopped at any moment. Loads go
# on beside it: what they write during the audit is not compared.

#: A report lists this many violations and counts the others. Chosen as for the invariants of the ledger.
_LISTED = 100
#: This many of them are listed with their first offsets, each of which takes a statement.
_NAMED = 10


def audit_table(table: WrittenTable, tell: Callable[[TableAudit], None]) -> TableAudit:
    """Count the rows of every published range.

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
