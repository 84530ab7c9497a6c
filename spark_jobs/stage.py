"""One task: read its splits, decode, COPY into staging, count."""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import psycopg2
import pyarrow as pa
import pyarrow.compute as pc
from psycopg2 import errors

from kafka_ingest.errors import AccountingMismatch, IngestError, RefusedRecord, RetryLater
from kafka_ingest.postgres.database import (
    Connection,
    TransactionLimits,
    connect,
    database_faults,
    run_query,
    server_message,
    transaction,
)
from kafka_ingest.postgres.staging_tables import staging_table
from kafka_ingest.protocol.accounting import require_few_dead_letters
from kafka_ingest.protocol.batch import RecordCounts, TaskSeconds
from kafka_ingest.protocol.staging import (
    DeadLetterRun,
    DeadLetterSample,
    NewField,
    Split,
    SplitResult,
    StageContext,
    StageResult,
    StageTask,
    relaxed_gc,
    staging_name,
)
from spark_jobs.decode.changes import decoder_of
from spark_jobs.decode.record import has_storable_time
from spark_jobs.decode.values import Rejected, without_refused
from spark_jobs.records import RangeReader
from spark_jobs.staging import StagingWriter, storable_detail

# Account of one split: every offset once, and what became of it.

MAX_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class ChunkOutcome:
    """What became of a chunk's records.

    Attributes:
        rows: Number of staged rows, with those that have values that did not travel.
        dead: Dead letters of every kind, by rising index in the chunk.
        tombstones: Number of counted tombstones.
        deletes: Number of staged deletes.
    """

    rows: int
    dead: Sequence[Rejected]
    tombstones: int
    deletes: int = 0


class SplitAccount:
    """The counts of one split, chunk by chunk in offset order.

    Args:
        split: What is read.
    """

    def __init__(self, split: Split) -> None:
        self._split = split
        self._next_offset = split.start
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
        """Offsets passed so far: from the split's start up to the last record."""
        return self._next_offset - self._split.start

    def require_in_order(self, records: pa.RecordBatch) -> None:
        """Check a chunk before anything of it is staged.

        Raises:
            AccountingMismatch: A record of another partition, outside ``[start, end)``, or not above the one before.
        """
        split, offsets = self._split, records.column("offset")
        expected = f"rising offsets from {self._next_offset} to {split.end - 1} of {split.topic_partition}"
        if not (_all_equal(records, "topic", split.topic) and _all_equal(records, "partition", split.partition)):
            raise self._mismatch("the reader gave a record of another partition", expected, "another partition")
        rising = pc.all(pc.greater(offsets.slice(1), offsets.slice(0, len(offsets) - 1))).as_py()
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if rising is False or first < self._next_offset or last >= split.end:
            found = f"offsets {first} to {last}" + ("" if rising is not False else ", not rising")
            raise self._mismatch("the reader gave records out of order or out of range", expected, found)

    def add(self, records: pa.RecordBatch, outcome: ChunkOutcome) -> None:
        """Add a chunk that passed :meth:`require_in_order`.

        Raises:
            AccountingMismatch: The outcome does not account for every record once.
        """
        counts = RecordCounts(
            rows=outcome.rows,
            deletes=outcome.deletes,
            dead_letters=len(outcome.dead),
            tombstones=outcome.tombstones,
        )
        if counts.readable != records.num_rows:
            found = (
                f"{counts.rows} rows, {counts.deletes} deletes, {counts.dead_letters} dead letters, "
                f"{counts.tombstones} tombstones"
            )
            raise self._mismatch("a chunk's records do not add up", f"{records.num_rows} records", found)
        offsets = records.column("offset")
        self._counts += counts
        self._run += dead_letter_run(offsets, [row.row_index for row in outcome.dead])
        self._next_offset = offsets[-1].as_py() + 1
        self._add_samples(offsets, outcome.dead)
        self._add_times(records.column("timestamp_ms"))

    def result(self, end_leader_epoch: int | None, start_leader_epoch: int | None = None) -> SplitResult:
        """Return the account of a split that was read to its end; offsets without a record are invisible."""
        invisible = self._split.span_offsets - self._counts.readable
        return SplitResult(
            index=self._split.index,
            counts=replace(self._counts, invisible=invisible),
            record_time_min_ms=min(self._times, default=None),
            record_time_max_ms=max(self._times, default=None),
            last_record_time_ms=self._last_time,
            start_leader_epoch=start_leader_epoch,
            end_leader_epoch=end_leader_epoch,
            dead_letter_run=self._run,
            samples=tuple(self._samples),
        )

    def _add_samples(self, offsets: pa.Array, dead: Sequence[Rejected]) -> None:
        for row in dead[: MAX_SAMPLES - len(self._samples)]:
            offset, detail = offsets[row.row_index].as_py(), storable_detail(row.detail)
            place = self._split
            self._samples.append(DeadLetterSample(place.topic, place.partition, offset, row.reason.value, detail))

    def _add_times(self, times: pa.Array) -> None:
        # A record time that cannot be stored is a dead letter and no time of the batch.
        possible = times.filter(has_storable_time(times))
        if len(possible):
            bounds = pc.min_max(possible).as_py()
            known = [*self._times, bounds["min"], bounds["max"]]
            self._times = [min(known), max(known)]
        self._last_time = times[-1].as_py()

    def _mismatch(self, what: str, expected: str, found: str) -> AccountingMismatch:
        place = f"{self._split.topic_partition} [{self._split.start}, {self._split.end})"
        return AccountingMismatch(
            f"{what}: {place}; nothing was published",
            expected=expected,
            found=found,
        )


def dead_letter_run(offsets: pa.Array, dead: Sequence[int]) -> DeadLetterRun:
    """Return the runs of consecutive dead letters in a stretch of records.

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
    """Group rising numbers into (first, length) of stretches without a gap."""
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


# How far a task is, told to the driver on a connection of its own: the task's rows are invisible until it commits.
# A courtesy: what goes wrong here is logged, and never fails the task.

_log = logging.getLogger(__name__)

#: Often enough for a log line every few seconds, rare enough to cost nothing.
INTERVAL_SECONDS = 2.0
#: A server that answers slowly, or has no free connection, delays a task no more often than this.
_INTERVAL_AFTER_FAULT_SECONDS = 30.0
#: The row belongs to this task alone: it is locked only while its table is being dropped.
_LIMITS = TransactionLimits(lock_timeout_seconds=1)


class StageProgressReport:
    """The progress row of one task attempt.

    Args:
        connect: Opens a connection for this use alone. It is called again after a fault, for example when the server
            ended a session that was idle between two chunks (``idle_session_timeout``).
        stem: Stem of the names of the attempt's staging tables.
        stage_task: Index of the Spark task.
        stage_attempt: Spark's id of the task attempt.
        monotonic: Clock in seconds.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        stem: str,
        *,
        stage_task: int,
        stage_attempt: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._table = {"progress": staging_table(stem, "progress")}
        self._tag = {"stage_task": stage_task, "stage_attempt": stage_attempt}
        self._place: dict[str, str | int | None] = dict.fromkeys(("topic", "partition", "first_offset", "end_offset"))
        self._monotonic = monotonic
        self._next = monotonic() + INTERVAL_SECONDS
        self._last_was_told = True

    def close(self) -> None:
        """Close the connection; the next report opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def begin(self, topic: str, partition: int, offsets: tuple[int, int], *, staged: tuple[int, int]) -> None:
        """Report, before each chunk, the records that the task is at: if they kill its process, they can be named.

        Args:
            topic: Their topic.
            partition: Their partition.
            offsets: The first offset, and the one past the last.
            staged: Records staged and offsets passed before them.
        """
        self._place = {"topic": topic, "partition": partition, "first_offset": offsets[0], "end_offset": offsets[1]}
        if self._last_was_told:
            self.tell(*staged)
        else:
            self.tell_sometimes(*staged)

    def end(self, records: int, offsets: int) -> None:
        """Write the last numbers: the task works no more."""
        self._place = dict.fromkeys(self._place)
        self.tell(records, offsets)

    def tell_sometimes(self, records: int, offsets: int) -> None:
        """Write the numbers, unless that was done less than two seconds ago."""
        if self._monotonic() >= self._next:
            self.tell(records, offsets)

    def tell(self, records: int, offsets: int) -> None:
        """Write the numbers now: records staged and offsets passed by this attempt. Durable on return, or logged."""
        try:
            self._write({**self._tag, **self._place, "records": records, "offsets": offsets})
        except (psycopg2.Error, IngestError) as error:
            reason = server_message(error) if isinstance(error, psycopg2.Error) else error.found
            _log.warning("the progress of a task was not told, the task goes on: %s", reason)
            self.close()
            self._last_was_told = False
        else:
            self._last_was_told = True
        self._next = self._monotonic() + (INTERVAL_SECONDS if self._last_was_told else _INTERVAL_AFTER_FAULT_SECONDS)

    def _write(self, values: dict[str, object]) -> None:
        if self._connection is None:
            self._connection = self._connect()
        with transaction(self._connection, _LIMITS) as cursor:
            run_query(cursor, "record_staging_progress", self._table, **values)


T = TypeVar("T")


class TaskStopwatch:
    """Seconds by the names of :class:`TaskSeconds`. A task reads the clock only a few times a chunk."""

    def __init__(self) -> None:
        self._seconds = {"read": 0.0, "decode": 0.0, "copy": 0.0}

    @property
    def seconds(self) -> TaskSeconds:
        """What was measured so far."""
        return TaskSeconds(**self._seconds)

    @contextmanager
    def measuring(self, part: str) -> Iterator[None]:
        """Add the time that the block takes, also when it fails."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] += time.perf_counter() - began

    def each(self, part: str, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, adding the time that each is waited for."""
        iterator = iter(items)
        while True:
            with self.measuring(part):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item


# One staging task. Nothing that it does is visible to the target: the driver publishes what the winning attempt of each
# task staged. An attempt that is retried, doubled by speculation or killed leaves rows that nobody selects, or none.

#: A worker that is stopped or cut off must not hold its transaction for ever. So long, because the transaction is also
#: idle while the reader passes a large aborted transaction of Kafka, which has no readable record.
MIN_IDLE_TIMEOUT_SECONDS = 1_800


def stage_task(
    task: StageTask, context: StageContext, attempt_id: int, *, reader: RangeReader | None = None
) -> StageResult:
    """Stage the splits of one task, one after another.

    Durable on return: rows and dead letters, tagged with ``task.task_index`` and ``attempt_id``, were committed to the
    attempt's (unlogged) staging tables. An error leaves none of them.

    Args:
        task: Splits to read.
        context: Settings of the attempt.
        attempt_id: Spark's id of the task attempt; differs between any two attempts of a batch.
        reader: Reads the splits; by default a Kafka reader of its own, closed at the end.

    Raises:
        AccountingMismatch: The reader gave a record twice, out of order or outside its split.
        TooManyDeadLetters: This task alone passes the batch's limit of dead letters.
        RetryLater: The staging tables are gone, or database or broker cannot be reached.
        OffsetsExpired, LogTruncated: The log no longer holds the split.
    """
    stem = staging_name(context.batch_id, context.claim)
    limits = TransactionLimits(
        lock_timeout_seconds=30,
        idle_timeout_seconds=max(MIN_IDLE_TIMEOUT_SECONDS, 4 * context.no_progress_timeout_seconds),
    )
    name = f"kafka_ingest stage task {task.task_index}"
    with relaxed_gc(), _faults(context), ExitStack() as stack:
        connection = stack.enter_context(closing(connect(context.postgres, application_name=name)))
        tell = partial(connect, context.postgres, application_name=f"{name} progress")
        progress = StageProgressReport(tell, stem, stage_task=task.task_index, stage_attempt=attempt_id)
        stack.callback(progress.close)
        with transaction(connection, limits):
            writer = StagingWriter(connection, stem, context, task.task_index, attempt_id)
            stager = _SplitStager(context, writer, progress, task.refused)
            # Last, and read from at once: librdkafka looks for leaders as it connects, and then once a second. Building
            # the decoder in between made the first read of a pipeline with a registry wait for 0.8 s instead of 0.1.
            source = reader or stack.enter_context(closing(_kafka_reader(context)))
            results = tuple(stager.stage(source, split) for split in task.splits)
        stager.end()
    return StageResult(task.task_index, attempt_id, results, stager.seconds, stager.new_fields)


class _SplitStager:
    """The stager of a task's splits; keeps the account of the whole task."""

    def __init__(
        self,
        context: StageContext,
        writer: StagingWriter,
        progress: StageProgressReport,
        refused: Sequence[RefusedRecord],
    ) -> None:
        self._context = context
        self._decoder = decoder_of(
            context.settings, context.target, batch_id=context.batch_id, registry=context.registry
        )
        self._writer = writer
        self._progress = progress
        self._refused = {(record.topic, record.partition, record.offset): record for record in refused}
        self._counts = RecordCounts()
        self._offsets = 0
        self._stopwatch = TaskStopwatch()

    @property
    def seconds(self) -> TaskSeconds:
        return self._stopwatch.seconds

    @property
    def new_fields(self) -> tuple[NewField, ...]:
        return self._decoder.new_fields

    def stage(self, reader: RangeReader, split: Split) -> SplitResult:
        account = SplitAccount(split)
        with _reading(reader, split) as batches:
            for records in self._stopwatch.each("read", batches):
                account.require_in_order(records)
                self._tell_place(records, split, account)
                account.add(records, self._stage_chunk(records, split))
                self._require_few_dead_letters(account)
                staged = self._counts + account.counts
                self._progress.tell_sometimes(staged.readable, self._offsets + account.passed_offsets)
        self._counts += account.counts
        self._offsets += split.span_offsets
        return account.result(reader.end_leader_epoch(), reader.start_leader_epoch())

    def end(self) -> None:
        self._progress.end(self._counts.readable, self._offsets)

    def _tell_place(self, records: pa.RecordBatch, split: Split, account: SplitAccount) -> None:
        offsets = records.column("offset")
        staged = (self._counts + account.counts).readable, self._offsets + account.passed_offsets
        self._progress.begin(split.topic, split.partition, (offsets[0].as_py(), offsets[-1].as_py() + 1), staged=staged)

    def _stage_chunk(self, records: pa.RecordBatch, split: Split) -> ChunkOutcome:
        with self._stopwatch.measuring("decode"):
            decoded = self._decoder.decode(records, generation=split.generation)
            decoded = without_refused(decoded, self._refused_in(records)) if self._refused else decoded
        with self._stopwatch.measuring("copy"):
            refused, refused_deletes = self._writer.write(decoded), self._writer.write_deletes(decoded)
            refused_partial = self._writer.write_partial(records, decoded, split)
            refusals = (decoded.dead, refused, refused_deletes, refused_partial)
            dead = list(heapq.merge(*refusals, key=lambda row: row.row_index))
            self._writer.write_dead_letters(records, dead, split)
            self._writer.write_counted(records, decoded.tombstones, split)
        rows, deletes = decoded.columns.num_rows - len(refused), len(decoded.delete_index) - len(refused_deletes)
        rows += len(decoded.partial_index) - len(refused_partial)
        return ChunkOutcome(rows, dead, len(decoded.tombstones), deletes)

    def _refused_in(self, records: pa.RecordBatch) -> list[Rejected]:
        places = zip(*(records.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
        found = ((index, self._refused.get(place)) for index, place in enumerate(places))
        return [Rejected(index, record.reason, record.detail) for index, record in found if record]

    def _require_few_dead_letters(self, account: SplitAccount) -> None:
        """Stop early at a limit that one task can check; the share of all records is checked for the whole batch."""
        require_few_dead_letters(
            replace(self._context.settings.dead_letters, max_ratio=1.0),
            self._counts + account.counts,
            [account.dead_letter_run],
            samples=account.samples,
        )


@contextmanager
def _reading(reader: RangeReader, split: Split) -> Iterator[Iterator[pa.RecordBatch]]:
    batches = reader.read(split)
    try:
        yield batches
    finally:
        # After a fault the traceback keeps the generator alive, but it must end before the reader is closed.
        if isinstance(batches, Generator):
            batches.close()


@contextmanager
def _faults(context: StageContext) -> Iterator[None]:
    with database_faults("stage records"):
        try:
            yield
        except errors.UndefinedTable as error:
            raise RetryLater(
                "the staging tables of this attempt are gone",
                expected=f"tables of claim {context.claim}",
                found=error.diag.message_primary or "",
                next_command="none: a newer attempt dropped them, and this one ends without a trace",
                batch_id=context.batch_id,
            ) from error


def _kafka_reader(context: StageContext) -> RangeReader:
    # Imported here: a test with a reader of its own needs no librdkafka.
    from spark_jobs.reader import KafkaRangeReader

    timeout = context.no_progress_timeout_seconds
    reader: RangeReader = KafkaRangeReader(context.kafka, no_progress_timeout_seconds=timeout)
    return reader
