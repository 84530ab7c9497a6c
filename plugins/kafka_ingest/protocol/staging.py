"""What a load works on: columns of the target, dead letters, splits and tasks, what a task reports."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from math import ceil

from kafka_ingest.errors import AccountingMismatch, error_from_record
from kafka_ingest.protocol.batch import Batch, RecordCounts, TaskSeconds
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.settings import BatchSettings, KeyFormat, TargetSettings

# ----------
# The target table as its catalog describes it, as far as staging needs it.


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column that the pipeline fills: name, type in PostgreSQL's spelling, and whether it is NOT NULL."""

    name: str
    type: str
    is_not_null: bool


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """A CHECK constraint: its name, its expression from ``pg_get_expr``, and the columns that it reads."""

    name: str
    expression: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetShape:
    """The columns that the pipeline fills, in the order in which they are written, and the CHECKs that are staged."""

    columns: tuple[TargetColumn, ...]
    checks: tuple[CheckConstraint, ...]


def quoted(name: str) -> str:
    """Quote an identifier for a message."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(target: TargetSettings) -> str:
    """Quote the target's name for a message."""
    return f"{quoted(target.schema)}.{quoted(target.table)}"


def rename_column(target: TargetSettings, before: str, after: str) -> str:
    """Return the statement that renames a column of the target."""
    return f"ALTER TABLE {quoted_table(target)} RENAME COLUMN {quoted(before)} TO {quoted(after)};"


_KEY_TYPES = {KeyFormat.RAW: "bytea", KeyFormat.TEXT: "text", KeyFormat.JSON: "jsonb"}


def written_columns(settings: BatchSettings) -> tuple[TargetColumn, ...]:
    """Return every column that the pipeline writes: value, key, headers, metadata; in this order everywhere.

    ``is_not_null`` says what a created table gets; an existing table may be stricter (``TargetShape``).
    """
    metadata = settings.metadata
    columns = [TargetColumn(c.name, c.type, c.required) for c in settings.value.columns]
    if settings.key:
        columns.append(TargetColumn(settings.key.column, _KEY_TYPES[settings.key.format], settings.key.required))
    if settings.headers_column:
        columns.append(TargetColumn(settings.headers_column, "jsonb", False))
    columns += [
        TargetColumn(metadata.topic, "text", True),
        TargetColumn(metadata.generation, "integer", True),
        TargetColumn(metadata.partition, "integer", True),
        TargetColumn(metadata.offset, "bigint", True),
        TargetColumn(metadata.timestamp, "timestamp with time zone", False),
    ]
    if metadata.timestamp_type:
        columns.append(TargetColumn(metadata.timestamp_type, "text", False))
    return (*columns, TargetColumn(metadata.batch_id, "uuid", True))


# ----------
# Dead letters. The list of reasons is closed: monitoring can rely on it.


class DeadLetterReason(StrEnum):
    """Reasons, stored in ``dead_letter.reason``. ``detail`` says where and what, for a person."""

    NOT_UTF8 = "not_utf8"
    """Bytes that are not UTF-8 where text or JSON is expected."""
    MALFORMED = "malformed"
    """The value or key is not JSON."""
    WRONG_TYPE = "wrong_type"
    """A JSON value of another type than the column's, or text that does not name a value of the type."""
    MISSING_REQUIRED = "missing_required"
    """A required value is missing or null."""
    OUT_OF_RANGE = "out_of_range"
    """A number or time that the column's type cannot hold exactly."""
    TOO_LONG = "too_long"
    """Text longer than the column's limit."""
    UNSUPPORTED_TEXT = "unsupported_text"
    """Text that PostgreSQL cannot hold: U+0000, or a lone surrogate."""
    TOMBSTONE = "tombstone"
    """A null value, where the pipeline says that it is a dead letter."""
    RECORD_TIME_OUT_OF_RANGE = "record_time_out_of_range"
    """A record time outside the years 1 to 9999."""
    UNREADABLE_HEADERS = "unreadable_headers"
    """Header names that are not UTF-8; the client library cannot return the headers."""
    NOT_NULL_VIOLATION = "not_null_violation"
    """NULL for a NOT NULL column of the target."""
    CHECK_VIOLATION = "check_violation"
    """A CHECK constraint of the target is false for the row."""
    REFUSED_BY_DATABASE = "refused_by_database"
    """PostgreSQL refused the row on its own with SQLSTATE class 22, 23 or 54."""


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that only the INSERT into the target refuses: where it is, and why it becomes a dead letter."""

    topic: str
    partition: int
    offset: int
    reason: DeadLetterReason
    detail: str

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] offset {self.offset}: {self.reason}: {self.detail}"


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """The dead letters of a batch that have one reason: how many, and the first of them by partition and offset."""

    reason: str
    records: int
    first_in: TopicPartition
    first_offset: int


# ----------
# What a task gets to stage and what it reports: plain values that travel to Spark and back.


@dataclass(frozen=True, slots=True)
class Split:
    """Offsets ``[start, end)`` of one partition that one task reads with one pass.

    ``index`` numbers the splits of a batch; within a partition a higher index means higher offsets.
    ``leader_epoch`` is known only for the split that begins at the committed position. Offsets below ``replaced_to``
    were loaded before and are replaced.
    """

    index: int
    topic: str
    partition: int
    generation: int
    start: int
    end: int
    leader_epoch: int | None = None
    replaced_to: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that is read."""
        return TopicPartition(self.topic, self.partition)

    @property
    def span_offsets(self) -> int:
        """Number of offsets in the split."""
        return self.end - self.start

    def holds(self, record: RefusedRecord) -> bool:
        """Tell whether a record of the batch is in the split."""
        is_here = (record.topic, record.partition) == (self.topic, self.partition)
        return is_here and self.start <= record.offset < self.end


@dataclass(frozen=True, slots=True)
class StageTask:
    """The splits of one Spark task, read one after another by one consumer.

    ``refused`` are records that the target refuses: they become dead letters before their values are decoded.
    """

    task_index: int
    splits: tuple[Split, ...]
    refused: tuple[RefusedRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class DeadLetterRun:
    """Runs of consecutive dead letters in a stretch of records; adds up in offset order.

    Attributes:
        records: Readable records in the stretch.
        leading: Dead letters at its beginning.
        trailing: Dead letters at its end.
        longest: The longest run anywhere in it.
        longest_start: Offset of the first record of the longest run; -1 when there is none.
        trailing_start: Offset of the first record of the trailing run; -1 when there is none.
    """

    records: int = 0
    leading: int = 0
    trailing: int = 0
    longest: int = 0
    longest_start: int = -1
    trailing_start: int = -1

    def __add__(self, other: DeadLetterRun) -> DeadLetterRun:
        if not self.records:
            return other
        if not other.records:
            return self
        joined = self.trailing + other.leading
        longest, start = max(
            (self.longest, self.longest_start),
            (joined, self.trailing_start if self.trailing else other.longest_start),
            (other.longest, other.longest_start),
            key=lambda run: run[0],
        )
        whole_other = other.leading == other.records
        return DeadLetterRun(
            records=self.records + other.records,
            leading=self.leading + (other.leading if self.leading == self.records else 0),
            trailing=joined if whole_other else other.trailing,
            longest=longest,
            longest_start=start if longest else -1,
            trailing_start=(
                (self.trailing_start if self.trailing else other.trailing_start)
                if whole_other
                else other.trailing_start
            ),
        )


@dataclass(frozen=True, slots=True)
class DeadLetterSample:
    """One dead letter for a message: where and why, never the payload."""

    topic: str
    partition: int
    offset: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What one task found in one split.

    Attributes:
        index: The split's index.
        counts: What became of its offsets; adds up to its span.
        record_time_min_ms: Smallest record time, ms since 1970 UTC; ``None`` without a record that has a time.
        record_time_max_ms: Greatest record time.
        last_record_time_ms: Time of the readable record with the highest offset; ``None`` without one.
        start_leader_epoch: Leader epoch of the first record at or after the start, or of the event that ended the
            split before any; ``None`` when the broker told none.
        end_leader_epoch: Leader epoch at the end of the split; ``None`` when the broker told none.
        dead_letter_run: Runs of consecutive dead letters.
        samples: The first dead letters, at most five.
    """

    index: int
    counts: RecordCounts
    record_time_min_ms: int | None = None
    record_time_max_ms: int | None = None
    last_record_time_ms: int | None = None
    start_leader_epoch: int | None = None
    end_leader_epoch: int | None = None
    dead_letter_run: DeadLetterRun = field(default_factory=DeadLetterRun)
    samples: tuple[DeadLetterSample, ...] = ()


@dataclass(frozen=True, slots=True)
class StageResult:
    """What the winning attempt of one task staged. Only rows tagged with ``attempt_id`` are published.

    ``seconds`` says how the attempt spent its time.
    """

    task_index: int
    attempt_id: int
    splits: tuple[SplitResult, ...]
    seconds: TaskSeconds = field(default_factory=TaskSeconds)


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How far staging is: records staged and offsets passed, summed over all tasks."""

    records: int = 0
    offsets: int = 0


def staging_name(batch_id: str, claim: int) -> str:
    """Return the stem of the names of an attempt's staging tables: unique by batch and claim, 63 bytes at most."""
    return f"b{batch_id.replace('-', '')}_c{claim}"


# ----------
# Cutting the ranges of a batch into tasks: large partitions are split, small ones share a task.

#: Below this many offsets another task costs more than it saves: a consumer and two database connections take some
#: tenths of a second, in which one task reads about this much.
MIN_TASK_OFFSETS = 25_000

#: Above this many offsets a task is cut further, so that a lost executor costs seconds and not the whole batch.
MAX_TASK_OFFSETS = 1_000_000


def cut_into_tasks(ranges: Sequence[OffsetRange], parallelism: int) -> tuple[StageTask, ...]:
    """Cut ranges into disjoint splits that cover them, grouped into tasks of about equal span.

    Offsets are not records: compacted or aborted stretches make some tasks lighter than planned.

    Args:
        ranges: The batch's ranges.
        parallelism: Tasks that can run at once, at least 1.

    Returns:
        Tasks numbered from 0. Within a task splits are in (topic, partition, start) order; their indexes number
        the batch's splits in that same order.
    """
    total = sum(r.span_offsets for r in ranges)
    if not total:
        return ()
    count = _task_count(total, parallelism)
    splits = _cut(ranges, max_span=ceil(total / count))
    return tuple(
        StageTask(number, tuple(sorted(group, key=lambda s: s.index)))
        for number, group in enumerate(_pack(splits, count))
    )


def tasks_with_refused(tasks: Sequence[StageTask], refused: Sequence[RefusedRecord]) -> tuple[StageTask, ...]:
    """Return the tasks that have read refused records, with these records; results of the others stay valid."""
    told = (
        replace(task, refused=tuple(r for r in refused if any(split.holds(r) for split in task.splits)))
        for task in tasks
    )
    return tuple(task for task in told if task.refused)


def _task_count(total_offsets: int, parallelism: int) -> int:
    useful = max(1, min(parallelism, total_offsets // MIN_TASK_OFFSETS))
    rounds = ceil(total_offsets / (useful * MAX_TASK_OFFSETS))
    return useful * rounds


def _cut(ranges: Sequence[OffsetRange], max_span: int) -> list[Split]:
    splits: list[Split] = []
    for r in sorted(ranges, key=lambda r: (r.topic, r.partition)):
        for start, end in pairwise(_edges(r, max_span)):
            splits.append(
                Split(
                    index=len(splits),
                    topic=r.topic,
                    partition=r.partition,
                    generation=r.generation,
                    start=start,
                    end=end,
                    leader_epoch=r.leader_epoch if start == r.committed_before else None,
                    replaced_to=r.replaced_to,
                )
            )
    return splits


def _edges(r: OffsetRange, max_span: int) -> list[int]:
    """Return the edges of splits; one is the committed offset, where the leader epoch is checked."""
    pieces = ceil(r.span_offsets / max_span)
    edges = {r.start + r.span_offsets * i // pieces for i in range(pieces + 1)}
    return sorted(edges | ({r.committed_before} if r.committed_before < r.end else set()))


def _pack(splits: list[Split], count: int) -> list[list[Split]]:
    """Give each split, the longest first, to the task with the least to do (Graham's LPT: at most 4/3 of the best)."""
    groups: list[list[Split]] = [[] for _ in range(count)]
    loads = [0] * count
    for split in sorted(splits, key=lambda s: (-s.span_offsets, s.index)):
        lightest = loads.index(min(loads))
        groups[lightest].append(split)
        loads[lightest] += split.span_offsets
    return [group for group in groups if group]


# ----------
# What every staging task gets besides its splits. It travels inside the task, never in arguments.


@dataclass(frozen=True, slots=True)
class StageContext:
    """One attempt's settings.

    Attributes:
        batch_id: The batch.
        claim: The attempt's claim; with the batch it names the staging tables.
        settings: Frozen settings.
        target: The target's columns and CHECKs.
        kafka: librdkafka configuration, complete, with secrets.
        postgres: Keyword arguments for ``psycopg2.connect``, with secrets.
        no_progress_timeout_seconds: After this long without a sign of progress the broker counts as unavailable.
    """

    batch_id: str
    claim: int
    settings: BatchSettings
    target: TargetShape
    kafka: Mapping[str, str] = field(repr=False)
    postgres: Mapping[str, str] = field(repr=False)
    no_progress_timeout_seconds: int = 120


# ----------
# What tasks hand back to the driver, and the check that each task did so once.


@dataclass(frozen=True, slots=True)
class StageFault:
    """A task's fault, written by ``IngestError.to_record``; it is a value, so that Spark does not retry it."""

    task_index: int
    record: Mapping[str, str | None]


def one_result_per_task(
    batch: Batch, tasks: Sequence[StageTask], found: Iterable[StageResult | StageFault]
) -> Sequence[StageResult]:
    """Return the results in the order of the tasks.

    Raises:
        IngestError: The fault of the first task that has one, in its class.
        AccountingMismatch: A task gave no result, or several.
    """
    answers = list(found)
    faults = sorted((a for a in answers if isinstance(a, StageFault)), key=lambda fault: fault.task_index)
    if faults:
        raise error_from_record(faults[0].record)
    results = {answer.task_index: answer for answer in answers if isinstance(answer, StageResult)}
    if Counter(answer.task_index for answer in answers) != Counter(task.task_index for task in tasks):
        raise AccountingMismatch(
            "tasks did not give one result each; nothing was published",
            expected=f"one result of each of {len(tasks)} tasks",
            found=f"results of tasks {sorted(answer.task_index for answer in answers)}",
            next_command="see docs/runbook.md, section AccountingMismatch",
        )
    return [results[task.task_index] for task in tasks]


# ----------
# Python's garbage collector, in work that makes many objects and hardly any cycles.

#: The collector runs after N new objects (Python: 700). A chunk of a task is up to 10,000 messages and as many decoded
#: records, a plan a dozen objects for each of its partitions; all of them die when their count falls to zero, so
#: looking through them finds nothing. Cycles are kept for ten chunks at most.
_OBJECTS_BETWEEN_COLLECTIONS = 100_000


@contextmanager
def relaxed_gc() -> Iterator[None]:
    """Run the collector rarely in this process meanwhile, then as often as before."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
