"""Keeps account of one subrange while it is staged: every offset once, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.core.batch import RecordCounts
from kafka_ingest.core.errors import AccountingMismatch
from kafka_ingest.core.staging import DeadLetterRun, DeadLetterSample, Subrange, SubrangeResult
from spark_jobs.decode.decoded import DeadRow
from spark_jobs.staged_dead_letters import storable_detail

MAX_SAMPLES = 5

#: The years 1 to 9999 in ms since 1970; a record time outside them is a dead letter and no time of the batch.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


@dataclass(frozen=True, slots=True)
class ChunkOutcome:
    """What became of a chunk's records.

    Attributes:
        rows: Number of staged rows.
        dead: Dead letters of every kind, by rising index in the chunk.
        tombstones: Number of counted tombstones.
    """

    rows: int
    dead: Sequence[DeadRow]
    tombstones: int


class SubrangeAccount:
    """Adds up the chunks of one subrange, in offset order.

    Args:
        subrange: What is read.
    """

    def __init__(self, subrange: Subrange) -> None:
        self._subrange = subrange
        self._next_offset = subrange.start
        self._counts = RecordCounts()
        self._run = DeadLetterRun()
        self._samples: list[DeadLetterSample] = []
        self._times: list[int] = []
        self._last_time: int | None = None

    @property
    def counts(self) -> RecordCounts:
        """Counts so far, without invisible offsets."""
        return self._counts

    @property
    def dead_letter_run(self) -> DeadLetterRun:
        """Runs of dead letters so far."""
        return self._run

    @property
    def samples(self) -> Sequence[DeadLetterSample]:
        """The first dead letters."""
        return self._samples

    @property
    def passed_offsets(self) -> int:
        """Offsets passed so far: from the subrange's start up to the last record."""
        return self._next_offset - self._subrange.start

    def require_in_order(self, records: pa.RecordBatch) -> None:
        """Checks a chunk before anything of it is staged.

        Raises:
            AccountingMismatch: A record of another partition, outside ``[start, end)``, or not above the one before.
        """
        subrange, offsets = self._subrange, records.column("offset")
        expected = f"rising offsets from {self._next_offset} to {subrange.end - 1} of {subrange.topic_partition}"
        if not (_all_equal(records, "topic", subrange.topic) and _all_equal(records, "partition", subrange.partition)):
            raise self._mismatch("the reader gave a record of another partition", expected, "another partition")
        rising = pc.all(pc.greater(offsets.slice(1), offsets.slice(0, len(offsets) - 1))).as_py()
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if rising is False or first < self._next_offset or last >= subrange.end:
            found = f"offsets {first} to {last}" + ("" if rising is not False else ", not rising")
            raise self._mismatch("the reader gave records out of order or out of range", expected, found)

    def add(self, records: pa.RecordBatch, outcome: ChunkOutcome) -> None:
        """Adds a chunk that passed :meth:`require_in_order`.

        Raises:
            AccountingMismatch: The outcome does not account for every record once.
        """
        counts = RecordCounts(rows=outcome.rows, dead_letters=len(outcome.dead), tombstones=outcome.tombstones)
        if counts.readable != records.num_rows:
            found = f"{counts.rows} rows, {counts.dead_letters} dead letters, {counts.tombstones} tombstones"
            raise self._mismatch("a chunk's records do not add up", f"{records.num_rows} records", found)
        offsets = records.column("offset")
        self._counts += counts
        self._run += dead_letter_run(offsets, [row.row_index for row in outcome.dead])
        self._next_offset = offsets[-1].as_py() + 1
        self._add_samples(offsets, outcome.dead)
        self._add_times(records.column("timestamp_ms"))

    def result(self, end_leader_epoch: int | None, start_leader_epoch: int | None = None) -> SubrangeResult:
        """Gives the account of a subrange that was read to its end; offsets without a record are invisible."""
        invisible = self._subrange.span_offsets - self._counts.readable
        return SubrangeResult(
            index=self._subrange.index,
            counts=replace(self._counts, invisible=invisible),
            record_time_min_ms=min(self._times, default=None),
            record_time_max_ms=max(self._times, default=None),
            last_record_time_ms=self._last_time,
            start_leader_epoch=start_leader_epoch,
            end_leader_epoch=end_leader_epoch,
            dead_letter_run=self._run,
            samples=tuple(self._samples),
        )

    def _add_samples(self, offsets: pa.Array, dead: Sequence[DeadRow]) -> None:
        for row in dead[: MAX_SAMPLES - len(self._samples)]:
            offset, detail = offsets[row.row_index].as_py(), storable_detail(row.detail)
            place = self._subrange
            self._samples.append(DeadLetterSample(place.topic, place.partition, offset, row.reason.value, detail))

    def _add_times(self, times: pa.Array) -> None:
        possible = times.filter(pc.and_(pc.greater_equal(times, _FIRST_MS), pc.less_equal(times, _LAST_MS)))
        if len(possible):
            bounds = pc.min_max(possible).as_py()
            known = [*self._times, bounds["min"], bounds["max"]]
            self._times = [min(known), max(known)]
        self._last_time = times[-1].as_py()

    def _mismatch(self, what: str, expected: str, found: str) -> AccountingMismatch:
        place = f"{self._subrange.topic_partition} [{self._subrange.start}, {self._subrange.end})"
        return AccountingMismatch(
            f"{what}: {place}; nothing was published",
            expected=expected,
            found=found,
            next_command="see docs/runbook.md, section AccountingMismatch",
        )


def dead_letter_run(offsets: pa.Array, dead: Sequence[int]) -> DeadLetterRun:
    """Gives the runs of consecutive dead letters in a stretch of records.

    Args:
        offsets: Offsets of the records, rising. Records are consecutive when no readable record is between them.
        dead: Rising indices of those that are dead letters.
    """
    runs = list(_runs(dead))
    if not runs:
        return DeadLetterRun(records=len(offsets))
    longest_first, longest = max(runs, key=lambda run: run[1])
    last_first, last = runs[-1]
    is_trailing = last_first + last == len(offsets)
    return DeadLetterRun(
        records=len(offsets),
        leading=runs[0][1] if runs[0][0] == 0 else 0,
        trailing=last if is_trailing else 0,
        longest=longest,
        longest_start=offsets[longest_first].as_py(),
        trailing_start=offsets[last_first].as_py() if is_trailing else -1,
    )


def _runs(indices: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Groups rising numbers into (first, length) of stretches without a gap."""
    first = length = 0
    for index in indices:
        if length and index == first + length:
            length += 1
            continue
        if length:
            yield first, length
        first, length = index, 1
    if length:
        yield first, length


def _all_equal(records: pa.RecordBatch, column: str, value: str | int) -> bool:
    return pc.all(pc.equal(records.column(column), value)).as_py() is True
