"""Staging tasks of the model: they read the fake log as strictly as the real reader, and may run more than once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from kafka_ingest.errors import DatabaseUnavailable, PartitionMissing, TopicMissing
from kafka_ingest.protocol.batch import Batch, RecordCounts
from kafka_ingest.protocol.staging import NewField, Split, SplitResult, StageResult, StageTask
from kafka_ingest.settings import Tombstones
from tests.contracts.ledger_worlds import Counted, Staged
from tests.fakes.database import StoredRecord
from tests.fakes.range_reader import epoch_from, require_end, require_start
from tests.protocol_model.attempts import Attempt
from tests.protocol_model.observed_log import ISOLATION, ObservedLog, Reading
from tests.protocol_model.stores import Store

BAD = b"bad"
#: What a value with a field begins with, whose name follows.
FIELD = b"field:"


@dataclass(frozen=True)
class Losers:
    """Task attempts that stage and do not win: before the winner as after a retry, after it as by speculation."""

    before: int = 0
    after: int = 0


NO_LOSERS = Losers()


def fate_of(value: bytes | None, tombstones: Tombstones) -> str | None:
    """Return what becomes of a record: ``row``, the reason of a dead letter, or ``None`` when it is only counted."""
    if value is None:
        return {Tombstones.ROW: "row", Tombstones.DEAD_LETTER: "tombstone", Tombstones.COUNT: None}[tombstones]
    return "malformed" if value.startswith(BAD) else "row"


def fields_of(readings: Iterable[Reading]) -> set[str]:
    """Return the names of all fields of what was read."""
    values = (value or b"" for reading in readings for value in reading.values.values())
    return {value.removeprefix(FIELD).decode() for value in values if value.startswith(FIELD)}


def columns_of(batch: Batch) -> set[str]:
    """Return the names of the fields that a batch's columns are filled from."""
    return {column.path[0] for column in batch.settings.value.columns}


class ModelTasks:
    """Port ``TaskRunner``: tasks one after another, each with one transaction of its own.

    Attributes:
        attempt: Whose tasks they are.
        claim: Batch and claim that they stage for, once they run.
        readings: What the winning attempts read for this claim.
    """

    def __init__(self, attempt: Attempt, log: ObservedLog, store: Store, losers: Losers) -> None:
        self.attempt = attempt
        self.claim: tuple[str, int] | None = None
        self.readings: list[Reading] = []
        self._log = log
        self._store = store
        self._losers = losers
        self._is_cancelled = False
        self._ids = count()  # as Spark numbers them: from 0 in every application

    def parallelism(self) -> int:
        return 2

    def run(self, batch: Batch, tasks: Sequence[StageTask]) -> Sequence[StageResult]:
        if self.claim != (batch.batch_id, batch.claim):
            self.claim, self.readings = (batch.batch_id, batch.claim), []
        results = []
        for task in tasks:
            for _ in range(self._losers.before):
                self._run_task(batch, task)
            result, readings = self._run_task(batch, task)
            for _ in range(self._losers.after):
                self._run_task(batch, task)
            results.append(result)
            self.readings += readings
        return results

    def cancel(self) -> None:
        self._is_cancelled = True

    def release(self) -> None:
        """The model has cores for all."""

    def _run_task(self, batch: Batch, task: StageTask) -> tuple[StageResult, list[Reading]]:
        server, number = self._store.incarnation, next(self._ids)
        results, readings, records, counted = [], [], [], []
        for split in task.splits:
            reading, start_epoch, end_epoch = self.attempt.call("task.read", partial(self._read, split))
            stored, counts = stored_records(reading, batch)
            readings.append(reading)
            records += [(task.task_index, number, record) for record in stored]
            counted += [(task.task_index, number, i) for i in counted_identities(reading, batch, split.replaced_to)]
            results.append(SplitResult(split.index, counts, start_leader_epoch=start_epoch, end_leader_epoch=end_epoch))
        self.attempt.call("task.stage", lambda: self._stage(batch, records, counted, server))
        new = tuple(NewField((name,), "jsonb") for name in sorted(fields_of(readings) - columns_of(batch)))
        return StageResult(task.task_index, number, tuple(results), new_fields=new), readings

    def _read(self, split: Split) -> tuple[Reading, int | None, int | None]:
        if self._is_cancelled:
            raise RuntimeError("the task was cancelled")
        topic = self._log.log.topics.get(split.topic)
        if topic is None:
            raise TopicMissing(f"no topic {split.topic}")
        if split.partition not in topic.partitions:
            raise PartitionMissing(f"no partition {split.topic_partition}")
        partition = topic.partitions[split.partition]
        require_start(partition, split)
        require_end(partition, split, ISOLATION)
        reading = self._log.read(split, self.attempt.cluster_id)
        epochs = [epoch_from(partition, offset, ISOLATION) for offset in (split.start, split.end)]
        return reading, epochs[0], epochs[1]

    def _stage(self, batch: Batch, records: list[Staged], counted: list[Counted], server: int) -> None:
        if self._store.incarnation != server:
            raise DatabaseUnavailable("the server ended the connection of the task")
        self._store.fill(batch, records, counted)


def stored_records(reading: Reading, batch: Batch) -> tuple[list[StoredRecord], RecordCounts]:
    """Return what a reading becomes under the batch's frozen settings: rows and dead letters, and the counts."""
    stored, tombstones = [], 0
    for offset, value in reading.values.items():
        fate = fate_of(value, batch.settings.tombstones)
        if fate is None:
            tombstones += 1
            continue
        reason = None if fate == "row" else fate
        stored.append(StoredRecord(*reading.place, offset, batch.batch_id, reason))
    dead = sum(record.reason is not None for record in stored)
    invisible = reading.end - reading.start - len(reading.values)
    return stored, RecordCounts(rows=len(stored) - dead, dead_letters=dead, tombstones=tombstones, invisible=invisible)


def counted_identities(reading: Reading, batch: Batch, replaced_to: int) -> list[tuple[str, int, int, int]]:
    """Return what is only counted where something may be replaced: it must be told from what the log has lost."""
    return [
        (*reading.place, offset)
        for offset, value in reading.values.items()
        if offset < replaced_to and fate_of(value, batch.settings.tombstones) is None
    ]
