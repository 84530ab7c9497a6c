"""Every offset once: counts that must add up, limits of dead letters, rows that replace others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TypeAlias

from kafka_ingest.errors import AccountingMismatch, ReloadWouldLose, RetryLater, TooManyDeadLetters
from kafka_ingest.protocol.batch import Batch, BatchOutcome, PartitionOutcome, RecordCounts
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.protocol.staging import (
    MOST_NEW_FIELDS,
    DeadLetterRun,
    DeadLetterSample,
    Split,
    SplitResult,
    StageResult,
    StageTask,
)
from kafka_ingest.settings import DeadLetterLimits, NewFields, json_path_text

# ----------
# Limits of dead letters: a few bad records never block a topic, and a broken producer never fills the table with them.


def require_few_dead_letters(
    limits: DeadLetterLimits,
    counts: RecordCounts,
    runs: Sequence[DeadLetterRun],
    *,
    samples: Sequence[DeadLetterSample],
) -> None:
    """Stop when a batch passes one of its limits.

    Args:
        limits: The pipeline's limits.
        counts: Counts of the batch, or of what one task has read so far.
        runs: Runs of consecutive dead letters, one a partition.
        samples: The first dead letters, for the message.

    Raises:
        TooManyDeadLetters: Names each limit that was passed and the first offsets.
    """
    passed = _passed(limits, counts, max((run.longest for run in runs), default=0))
    if not passed:
        return
    first = "".join(f"\n    {s.topic}[{s.partition}] offset {s.offset}: {s.reason}: {s.detail}" for s in samples)
    raise TooManyDeadLetters(
        "more records would become dead letters than the pipeline allows; nothing was written",
        expected="; ".join(limit for limit, _ in passed),
        found="; ".join(found for _, found in passed) + (f"; the first are{first}" if first else ""),
        next_command="correct the producer or the pipeline file (value, dead_letters), then clear load_batch",
    )


def _passed(limits: DeadLetterLimits, counts: RecordCounts, longest_run: int) -> list[tuple[str, str]]:
    dead, readable = counts.dead_letters, counts.readable
    passed = []
    if dead > limits.max_count:
        passed.append((f"at most {limits.max_count} dead letters (max_count)", f"{dead} dead letters"))
    if dead > limits.ratio_from_count and dead > limits.max_ratio * readable:
        passed.append((f"a share of at most {limits.max_ratio:.2%} (max_ratio)", f"{dead} of {readable} records"))
    if longest_run > limits.max_consecutive:
        passed.append(
            (f"at most {limits.max_consecutive} in a row (max_consecutive)", f"{longest_run} in a row in one partition")
        )
    return passed


# ----------
# Replacing what was loaded before.
#
# A range that begins below ``loaded_to`` reads offsets again whose rows are in the target. Publishing deletes these
# rows by identity and inserts the staged ones, in one transaction. So each deleted record must be staged again, or
# counted as gone.

#: A message names this many of the lost offsets for each partition.
FIRST_OFFSETS = 5


@dataclass(frozen=True, slots=True)
class ReplacedPartition:
    """What the transaction deleted in one partition.

    Attributes:
        where: The partition.
        rows: Rows that were deleted from the target.
        dead_letters: Dead letters that were deleted.
        missing: Deleted identities that are neither staged again nor counted: the log no longer holds them.
        first_missing: The lowest of their offsets.
    """

    where: TopicPartition
    rows: int
    dead_letters: int
    missing: int = 0
    first_missing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptDeadLetters:
    """Resolved dead letters of one partition that stay, with the rows that they were turned into.

    Attributes:
        where: The partition.
        rows: Those whose record is staged as a row now: the staged row is not published.
        dead_letters: Those whose record is staged as a dead letter again: it is not published.
        tombstones: Those whose record is counted as a tombstone now.
        invisible: Those whose record the log no longer holds.
        deletes: Those whose record is staged as a delete now: the staged delete is not published.
    """

    where: TopicPartition
    rows: int = 0
    dead_letters: int = 0
    tombstones: int = 0
    invisible: int = 0
    deletes: int = 0

    def with_others(self, *, rows: int, deletes: int) -> KeptDeadLetters:
        """Return them with more that are staged as rows, or as deletes, and had been taken for invisible."""
        return replace(self, rows=self.rows + rows, deletes=deletes, invisible=self.invisible - rows - deletes)

    def applied_to(self, counts: RecordCounts) -> RecordCounts:
        """Return the counts of the partition where every kept record counts as the dead letter that it stays."""
        return replace(
            counts,
            rows=counts.rows - self.rows,
            deletes=counts.deletes - self.deletes,
            tombstones=counts.tombstones - self.tombstones,
            invisible=counts.invisible - self.invisible,
            dead_letters=counts.dead_letters + self.rows + self.deletes + self.tombstones + self.invisible,
        )


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a publish transaction has deleted so far, and what it leaves in place."""

    replaced: tuple[ReplacedPartition, ...] = ()
    kept: tuple[KeptDeadLetters, ...] = ()

    def outcome_of(self, outcome: BatchOutcome) -> BatchOutcome:
        """Return the outcome where resolved dead letters count as what they are."""
        kept = {k.where: k for k in self.kept}

        def counted(part: PartitionOutcome) -> PartitionOutcome:
            found = kept.get(part.range.topic_partition)
            return replace(part, counts=found.applied_to(part.counts)) if found else part

        return replace(outcome, partitions=tuple(counted(part) for part in outcome.partitions))

    @property
    def staged_but_kept(self) -> tuple[int, int]:
        """Staged rows and staged dead letters that must not be published, because a resolved dead letter stays."""
        return sum(k.rows for k in self.kept), sum(k.dead_letters for k in self.kept)


def require_nothing_lost(replaced: Sequence[ReplacedPartition]) -> None:
    """Stop a publish that would delete records which the log no longer holds.

    Raises:
        ReloadWouldLose: Names their number and the first offsets, by partition.
    """
    losing = [part for part in replaced if part.missing]
    if not losing:
        return
    raise ReloadWouldLose(
        "records that were loaded before are no longer in the log; nothing was published",
        expected="every row and dead letter that is replaced to be read again",
        found="; ".join(
            f"{part.where}: {part.missing} gone, the first at {', '.join(map(str, part.first_missing))}"
            for part in losing
        ),
        next_command=(
            'start a new run with "reload what is left" (--reload-what-is-left), which gives these rows up, '
            "or leave the table as it is"
        ),
    )


# ----------
# What the fold of an upsert pipeline has found, as values; what follows of them is in ``fold.py``.

#: A message names this many keys.
FIRST_KEYS = 5


@dataclass(frozen=True, slots=True)
class Keys:
    """How many keys something is true of, and the texts of the first of them."""

    count: int = 0
    first: tuple[str, ...] = ()

    def __add__(self, other: Keys) -> Keys:
        return Keys(self.count + other.count, (*self.first, *other.first)[:FIRST_KEYS])

    def __str__(self) -> str:
        return f"{self.count:,} {'key' if self.count == 1 else 'keys'}, the first {', '.join(self.first)}"


@dataclass(frozen=True, slots=True)
class UnknownValues:
    """Records of one partition with values that did not travel and that nobody knows: they became dead letters.

    Attributes:
        where: The partition.
        records: How many were staged as rows.
        first_offsets: The first of them.
        first_detail: What the dead letter of the first says.
    """

    where: TopicPartition
    records: int
    first_offsets: tuple[int, ...] = ()
    first_detail: str = ""

    def applied_to(self, counts: RecordCounts) -> RecordCounts:
        """Return the counts of the partition where these records count as dead letters."""
        return replace(counts, rows=counts.rows - self.records, dead_letters=counts.dead_letters + self.records)


@dataclass(frozen=True, slots=True)
class Fold:
    """What a fold has found, before anything of it is written.

    Attributes:
        staged_rows: Staged rows that went into it.
        staged_deletes: Staged deletes that went into it.
        kept: Resolved dead letters that stay.
        unknown: What was staged as rows and became dead letters.
        in_two_partitions: Keys that offsets cannot order.
        lost: Keys whose row, or removed key, was read again and is no such row or delete any more, while nothing in the
            batch takes its place: the older version that should come back is not known.
        unread: Of a rebuild: keys of rows, or removed keys, whose record it did not read. They are taken away.
    """

    staged_rows: int = 0
    staged_deletes: int = 0
    kept: tuple[KeptDeadLetters, ...] = ()
    unknown: tuple[UnknownValues, ...] = ()
    in_two_partitions: Keys = Keys()
    lost: Keys = Keys()
    unread: Keys = Keys()


@dataclass(frozen=True, slots=True)
class AppliedChanges:
    """Rows that were written, and deletes that applied, also those of keys without a row."""

    rows: int = 0
    deletes: int = 0


# ----------
# Every offset of a batch is accounted for, once, before anything is published.
#
# For each range: ``end - start = rows + deletes + superseded + dead_letters + tombstones + filtered + invisible``.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: A warning names this many fields, each with at most so many characters.
_MOST_NAMED_FIELDS, _SHOWN_CHARACTERS = 20, 60

_Staged: TypeAlias = tuple[Split, SplitResult]


def account_for(batch: Batch, tasks: Sequence[StageTask], results: Sequence[StageResult]) -> BatchOutcome:
    """Add up the tasks' results to the batch's outcome, and check that nothing is missing or double.

    Args:
        batch: The claimed batch.
        tasks: What was to be staged.
        results: What the winning attempts staged.

    Raises:
        AccountingMismatch: A task or split is missing, double or does not add up to its span.
        RetryLater: The log of a partition changed between the reads of two of its splits.
        TooManyDeadLetters: The batch passes one of its limits.
    """
    staged = _staged_by_partition(tasks, results)
    outcome = BatchOutcome(
        partitions=tuple(_partition_outcome(batch, r, staged[r.topic_partition]) for r in batch.ranges),
        winners={result.task_index: result.attempt_id for result in results},
        warnings=_new_field_warnings(results) if batch.settings.value.new_fields is NewFields.WARN else (),
    )
    require_few_dead_letters(
        batch.settings.dead_letters,
        outcome.counts,
        [_run(parts) for parts in staged.values()],
        samples=[s for parts in staged.values() for _, result in parts for s in result.samples][:5],
    )
    return outcome


def _new_field_warnings(results: Sequence[StageResult]) -> tuple[str, ...]:
    names = sorted({json_path_text(field.path) for result in results for field in result.new_fields})
    if not names:
        return ()
    more = len(names) - _MOST_NAMED_FIELDS
    at_least = "at least " * any(len({f.path for f in result.new_fields}) >= MOST_NEW_FIELDS for result in results)
    rest = f" and {at_least}{more} more" if more > 0 else ""
    shown = ", ".join(map(_shown, names[:_MOST_NAMED_FIELDS]))
    return (f"fields of the value that no column reads: {shown}{rest}",)


def _shown(name: str) -> str:
    """Shorten a name, and escape what does not print: PostgreSQL stores no U+0000, and a log line is one line."""
    cut = name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def _staged_by_partition(
    tasks: Sequence[StageTask], results: Sequence[StageResult]
) -> dict[TopicPartition, list[_Staged]]:
    _require_equal("one result for each task", (t.task_index for t in tasks), (r.task_index for r in results))
    splits = {s.index: s for task in tasks for s in task.splits}
    found = [result for stage in results for result in stage.splits]
    _require_equal("one result for each split", splits, (result.index for result in found))
    staged: dict[TopicPartition, list[_Staged]] = {}
    for result in sorted(found, key=lambda r: r.index):
        split = splits[result.index]
        if result.counts.offsets != split.span_offsets:
            raise _mismatch(
                f"the counts of {split.topic_partition} [{split.start}, {split.end}) do not add up",
                expected=f"{split.span_offsets} offsets",
                found=f"{result.counts.offsets} ({result.counts})",
            )
        staged.setdefault(split.topic_partition, []).append((split, result))
    return staged


def _partition_outcome(batch: Batch, r: OffsetRange, parts: list[_Staged]) -> PartitionOutcome:
    edges = [r.start, *(split.end for split, _ in parts)]
    starts = [*(split.start for split, _ in parts), r.end]
    if edges != starts:
        raise _mismatch(f"the splits of {r} do not cover it", expected=str(starts), found=str(edges))
    _require_one_history(parts)
    results = [result for _, result in parts]
    return PartitionOutcome(
        range=r,
        counts=sum((result.counts for result in results), RecordCounts()),
        record_time_min=_time(min(_known(result.record_time_min_ms for result in results), default=None)),
        record_time_max=_time(max(_known(result.record_time_max_ms for result in results), default=None)),
        end_leader_epoch=results[-1].end_leader_epoch,
        valid_through=_valid_through(batch, r, results),
    )


def _require_one_history(parts: list[_Staged]) -> None:
    """Require that each split begins with what ended the one before.

    The first record at a seam is read from both sides. After an unclean election between the two reads it has a later
    leader epoch on one side: one split holds records that the log lost, and what the log has in their place would
    never be read. Only the first split is checked by the broker, against the epoch of the position.
    """
    for (left, before), (_, after) in pairwise(parts):
        if before.end_leader_epoch is None or after.start_leader_epoch is None:
            continue
        if before.end_leader_epoch != after.start_leader_epoch:
            raise RetryLater(
                f"the log of {left.topic_partition} changed while it was read; nothing was published",
                expected=f"leader epoch {before.end_leader_epoch} at offset {left.end}, as the task before it saw",
                found=f"leader epoch {after.start_leader_epoch}",
                next_command="none: a retry reads the batch again",
            )


def _valid_through(batch: Batch, r: OffsetRange, results: list[SplitResult]) -> datetime | None:
    """Return the plan's time if the range reaches the high watermark, else the time of the last record read.

    A range that moves no position leaves the stored time as it is.
    """
    if r.committed_after == r.committed_before:
        return None
    if r.reaches_high_watermark:
        return batch.planned_at
    last = _known(result.last_record_time_ms for result in results)
    return _time(last[-1]) if last else None


def _run(parts: list[_Staged]) -> DeadLetterRun:
    return sum((result.dead_letter_run for _, result in parts), DeadLetterRun())


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def _time(milliseconds: int | None) -> datetime | None:
    """Convert Kafka's milliseconds; ``None`` outside the years 1 to 9999, which only a dead letter can carry."""
    if milliseconds is None:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def _require_equal(rule: str, expected: Iterable[int], found: Iterable[int]) -> None:
    wanted, given = Counter(iter(expected)), Counter(iter(found))
    if wanted != given:
        raise _mismatch(
            f"staging did not give {rule}",
            expected=_listed(wanted - given) + " to be there" if wanted - given else "no more than planned",
            found=_listed(given - wanted) + " too many" if given - wanted else "nothing for these",
        )


def _listed(numbers: Mapping[int, int]) -> str:
    return ", ".join(str(n) for n in sorted(numbers)[:10])


def _mismatch(what: str, *, expected: str, found: str) -> AccountingMismatch:
    return AccountingMismatch(
        what + "; nothing was published",
        expected=expected,
        found=found,
    )
