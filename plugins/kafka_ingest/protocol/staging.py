"""What a load works on: splits and tasks, what a task gets, what it reports."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil

from kafka_ingest.errors import AccountingMismatch, RefusedRecord, error_from_record
from kafka_ingest.protocol.batch import RecordCounts, TaskSeconds
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.protocol.target import TargetShape
from kafka_ingest.settings import BatchSettings


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


#: A task reports no more: so many are keys that are data, such as ids, and no names of fields.
MOST_NEW_FIELDS = 100


@dataclass(frozen=True, slots=True)
class NewField:
    """A field of values that no column reads: the keys from the root, and the type that a column of its own would have.

    The type is that of the writer's schema, as ``column_types.py`` spells it; from JSON, which has none, ``jsonb``.
    """

    path: tuple[str, ...]
    type: str


@dataclass(frozen=True, slots=True)
class StageResult:
    """What the winning attempt of one task staged. Only rows tagged with ``attempt_id`` are published.

    ``seconds`` says how the attempt spent its time, ``new_fields`` what it met and no column reads.
    """

    task_index: int
    attempt_id: int
    splits: tuple[SplitResult, ...]
    seconds: TaskSeconds = field(default_factory=TaskSeconds)
    new_fields: tuple[NewField, ...] = ()


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

#: The same bounds in bytes, where records are large. The offsets were measured with records of 300 bytes, 320 at most:
#: up to that size the offsets decide, above it the bytes.
MIN_TASK_BYTES, MAX_TASK_BYTES = 8_000_000, 320_000_000

#: The largest record that a topic takes by default (``max.message.bytes``, Kafka 4).
_LARGEST_RECORD_BYTES = 1_048_588


def cut_into_tasks(
    ranges: Sequence[OffsetRange], parallelism: int, offset_bytes: int | None = None
) -> tuple[StageTask, ...]:
    """Cut ranges into disjoint splits that cover them, grouped into tasks of about equal span.

    Offsets are not records: compacted or aborted stretches make some tasks lighter than planned.

    Args:
        ranges: The batch's ranges.
        parallelism: Tasks that can run at once, at least 1.
        offset_bytes: Mean bytes of an offset; ``None`` where nobody knows: then offsets alone decide.

    Returns:
        Tasks numbered from 0. Within a task splits are in (topic, partition, start) order; their indexes number
        the batch's splits in that same order.
    """
    total = sum(r.span_offsets for r in ranges)
    if not total:
        return ()
    count = _task_count(total, parallelism, offset_bytes)
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


def tasks_at_once(total_offsets: int, parallelism: int, offset_bytes: int | None = None) -> int:
    """Return how many tasks of a batch run at once where ``parallelism`` can: a small batch has no use for more."""
    return max(1, min(parallelism, total_offsets // _bound(MIN_TASK_OFFSETS, MIN_TASK_BYTES, offset_bytes)))


def has_use_for_sizes(ranges: Sequence[OffsetRange], parallelism: int) -> bool:
    """Tell whether large records would give a batch more tasks than its offsets do: only then is it worth asking.

    Where tasks run one after another, more of them gain nothing.
    """
    total = sum(r.span_offsets for r in ranges)
    return parallelism > 1 and _task_count(total, parallelism, _LARGEST_RECORD_BYTES) > _task_count(total, parallelism)


def _task_count(total_offsets: int, parallelism: int, offset_bytes: int | None = None) -> int:
    useful = tasks_at_once(total_offsets, parallelism, offset_bytes)
    rounds = ceil(total_offsets / (useful * _bound(MAX_TASK_OFFSETS, MAX_TASK_BYTES, offset_bytes)))
    return useful * rounds


def _bound(offsets: int, size_bytes: int, offset_bytes: int | None) -> int:
    """Return so many offsets, or the fewer that hold so many bytes; at least one."""
    return min(offsets, max(1, size_bytes // offset_bytes)) if offset_bytes else offsets


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
        registry: Configuration of the schema registry, with secrets; empty for a pipeline without one.
    """

    batch_id: str
    claim: int
    settings: BatchSettings
    target: TargetShape
    kafka: Mapping[str, str] = field(repr=False)
    postgres: Mapping[str, str] = field(repr=False)
    no_progress_timeout_seconds: int = 120
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)


# ----------
# What tasks hand back to the driver, and the check that each task did so once.


@dataclass(frozen=True, slots=True)
class StageFault:
    """A task's fault, written by ``IngestError.to_record``; it is a value, so that Spark does not retry it."""

    task_index: int
    record: Mapping[str, str | None]


def one_result_per_task(tasks: Sequence[StageTask], found: Iterable[StageResult | StageFault]) -> Sequence[StageResult]:
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
