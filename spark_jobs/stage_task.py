"""One staging task: reads its subranges, decodes, and stages everything in one transaction of its own.

Nothing that a task does is visible to the target: the driver publishes what the winning attempt of each task staged.
An attempt that is retried, doubled by speculation or killed leaves rows that nobody selects, or none.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa
from psycopg2 import errors

from kafka_ingest.adapters.postgres_connection import TransactionLimits, connect, database_faults, transaction
from kafka_ingest.core.batch import RecordCounts
from kafka_ingest.core.dead_letter_limits import require_few_dead_letters
from kafka_ingest.core.dead_letters import RefusedRecord
from kafka_ingest.core.errors import RetryLater
from kafka_ingest.core.load_phases import TaskSeconds
from kafka_ingest.core.staging import StageResult, StageTask, Subrange, SubrangeResult, staging_name
from kafka_ingest.steps.rare_collections import rare_collections
from spark_jobs.chunks import chunks
from spark_jobs.decode.decoded import DeadRow, without_refused
from spark_jobs.decode.record_decoder import RecordDecoder
from spark_jobs.records import RangeReader
from spark_jobs.stage_context import StageContext
from spark_jobs.stage_progress import StageProgressReport
from spark_jobs.staging import StagingWriter
from spark_jobs.subrange_account import ChunkOutcome, SubrangeAccount
from spark_jobs.task_stopwatch import TaskStopwatch

#: A worker that is stopped or cut off must not hold its transaction for ever. So long, because the transaction is also
#: idle while the reader passes a large aborted transaction of Kafka, which gives no record.
MIN_IDLE_TIMEOUT_SECONDS = 1_800


def stage_task(
    task: StageTask, context: StageContext, attempt_id: int, *, reader: RangeReader | None = None
) -> StageResult:
    """Stages the subranges of one task, one after another.

    Durable on return: rows and dead letters, tagged with ``task.task_index`` and ``attempt_id``, were committed to the
    attempt's (unlogged) staging tables. An error leaves none of them.

    Args:
        task: Subranges to read.
        context: Settings of the attempt.
        attempt_id: Spark's id of the task attempt; differs between any two attempts of a batch.
        reader: Reads the subranges; by default a Kafka reader of its own, closed at the end.

    Raises:
        AccountingMismatch: The reader gave a record twice, out of order or outside its subrange.
        TooManyDeadLetters: This task alone passes the batch's limit of dead letters.
        RetryLater: The staging tables are gone, or database or broker cannot be reached.
        OffsetsExpired, LogTruncated: The log no longer holds what is to be read.
    """
    stem = staging_name(context.batch_id, context.claim)
    limits = TransactionLimits(
        lock_timeout_seconds=30,
        idle_timeout_seconds=max(MIN_IDLE_TIMEOUT_SECONDS, 4 * context.no_progress_timeout_seconds),
    )
    name = f"kafka_ingest stage task {task.task_index}"
    with rare_collections(), _faults(context), ExitStack() as stack:
        connection = stack.enter_context(closing(connect(context.postgres, application_name=name)))
        tell = partial(connect, context.postgres, application_name=f"{name} progress")
        progress = StageProgressReport(tell, stem, stage_task=task.task_index, stage_attempt=attempt_id)
        stack.callback(progress.close)
        source = reader or stack.enter_context(closing(_kafka_reader(context)))
        with transaction(connection, limits):
            writer = StagingWriter(connection, stem, context, task.task_index, attempt_id)
            stager = _SubrangeStager(context, writer, progress, task.refused)
            results = tuple(stager.stage(source, subrange) for subrange in task.subranges)
        stager.end()
    return StageResult(task.task_index, attempt_id, results, stager.seconds)


class _SubrangeStager:
    """Stages subranges and keeps the account of the whole task."""

    def __init__(
        self,
        context: StageContext,
        writer: StagingWriter,
        progress: StageProgressReport,
        refused: Sequence[RefusedRecord],
    ) -> None:
        self._context = context
        self._decoder = RecordDecoder(context.settings, context.target, batch_id=context.batch_id)
        self._writer = writer
        self._progress = progress
        self._refused = {(record.topic, record.partition, record.offset): record for record in refused}
        self._counts = RecordCounts()
        self._offsets = 0
        self._stopwatch = TaskStopwatch()

    @property
    def seconds(self) -> TaskSeconds:
        return self._stopwatch.seconds

    def stage(self, reader: RangeReader, subrange: Subrange) -> SubrangeResult:
        account = SubrangeAccount(subrange)
        with _reading(reader, subrange) as batches:
            for records in self._stopwatch.each("read", chunks(batches)):
                account.require_in_order(records)
                self._tell_place(records, subrange, account)
                account.add(records, self._stage_chunk(records, subrange))
                self._require_few_dead_letters(account)
                staged = self._counts + account.counts
                self._progress.tell_sometimes(staged.readable, self._offsets + account.passed_offsets)
        self._counts += account.counts
        self._offsets += subrange.span_offsets
        return account.result(reader.end_leader_epoch(), reader.start_leader_epoch())

    def end(self) -> None:
        self._progress.end(self._counts.readable, self._offsets)

    def _tell_place(self, records: pa.RecordBatch, subrange: Subrange, account: SubrangeAccount) -> None:
        offsets = records.column("offset")
        staged = (self._counts + account.counts).readable, self._offsets + account.passed_offsets
        self._progress.begin(
            subrange.topic, subrange.partition, (offsets[0].as_py(), offsets[-1].as_py() + 1), staged=staged
        )

    def _stage_chunk(self, records: pa.RecordBatch, subrange: Subrange) -> ChunkOutcome:
        with self._stopwatch.measuring("decode"):
            decoded = self._decoder.decode(records, generation=subrange.generation)
            decoded = without_refused(decoded, self._refused_in(records)) if self._refused else decoded
        with self._stopwatch.measuring("copy"):
            refused = self._writer.write(decoded)
            dead = _in_order(decoded.dead, refused)
            self._writer.write_dead_letters(records, dead, subrange)
            self._writer.write_counted(records, decoded.tombstones, subrange)
        return ChunkOutcome(decoded.columns.num_rows - len(refused), dead, len(decoded.tombstones))

    def _refused_in(self, records: pa.RecordBatch) -> list[DeadRow]:
        places = zip(*(records.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
        found = ((index, self._refused.get(place)) for index, place in enumerate(places))
        return [DeadRow(index, record.reason, record.detail) for index, record in found if record]

    def _require_few_dead_letters(self, account: SubrangeAccount) -> None:
        """Stops early on what one task can know; the share of all records is looked at when the batch is complete."""
        require_few_dead_letters(
            replace(self._context.settings.dead_letters, max_ratio=1.0),
            self._counts + account.counts,
            [account.dead_letter_run],
            samples=account.samples,
            batch_id=self._context.batch_id,
        )


@contextmanager
def _reading(reader: RangeReader, subrange: Subrange) -> Iterator[Iterator[pa.RecordBatch]]:
    batches = reader.read(subrange)
    try:
        yield batches
    finally:
        # After a fault the traceback keeps the generator alive, but it must end before the reader is closed.
        if isinstance(batches, Generator):
            batches.close()


def _in_order(dead: Sequence[DeadRow], refused: Sequence[DeadRow]) -> list[DeadRow]:
    return list(heapq.merge(dead, refused, key=lambda row: row.row_index))


@contextmanager
def _faults(context: StageContext) -> Iterator[None]:
    with database_faults("stage records", batch_id=context.batch_id):
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
    # Imported here: librdkafka is not needed where a test gives its own reader.
    from spark_jobs.range_reader import KafkaRangeReader

    timeout = context.no_progress_timeout_seconds
    reader: RangeReader = KafkaRangeReader(context.kafka, no_progress_timeout_seconds=timeout)
    return reader
