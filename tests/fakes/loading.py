"""What steps need beside ledger, log and publisher, in memory: staging, a runner that reads the fake log, a clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kafka_ingest.errors import TargetMismatch
from kafka_ingest.protocol.batch import Batch, RecordCounts, Request
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.staging import NewField, Split, SplitResult, StageProgress, StageResult, StageTask
from kafka_ingest.settings import BatchSettings
from tests.builders import NOON
from tests.fakes.database import FakeDatabase, FakePort, StoredRecord, at_once
from tests.fakes.log import FakeLog


@dataclass
class FakeClock:
    """Time that passes only by sleeping, or when a test says so."""

    time: datetime = NOON
    on_sleep: Callable[[], None] = lambda: None

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        self.on_sleep()


@dataclass
class FakeRunStates:
    """Runs that have ended, whatever number their requests have."""

    finished: set[Request] = field(default_factory=set)

    def is_finished(self, request: Request) -> bool:
        return any((run.dag_id, run.run_id) == (request.dag_id, request.run_id) for run in self.finished)


@dataclass
class FakeTarget:
    """A target that fits, but for rows that no record has written."""

    rows_without_version: int = 0

    def prepare(self, settings: BatchSettings) -> None:
        """Nothing to do."""

    def require_versions(self, settings: BatchSettings) -> None:
        if self.rows_without_version:
            found = f"{self.rows_without_version} rows without a version"
            raise TargetMismatch(f"the table {settings.target} has rows that no record has written", found=found)

    def require_replaceable(self, settings: BatchSettings) -> None:
        """Nothing holds it."""


class FakeStaging(FakePort):
    """Port ``Staging``."""

    @at_once
    def create(self, batch: Batch) -> None:
        self._drop(batch, up_to_claim=batch.claim - 1)
        self.database.staged.setdefault((batch.batch_id, batch.claim), [])

    @at_once
    def progress(self, batch: Batch) -> StageProgress:
        staged = len(self.database.staged.get((batch.batch_id, batch.claim), []))
        return StageProgress(staged, staged)

    @at_once
    def drop(self, batch: Batch) -> None:
        self._drop(batch, up_to_claim=batch.claim)

    def _drop(self, batch: Batch, *, up_to_claim: int) -> None:
        for table in (self.database.staged, self.database.counted):
            for attempt in [a for a in table if a[0] == batch.batch_id and a[1] <= up_to_claim]:
                del table[attempt]


class FakeRunner:
    """Stage what the fake log holds: values beginning with ``bad`` become dead letters.

    Attributes:
        before_result: Called when everything is staged, before the results are given: the place where a test lets other
            attempts or the world act.
        is_cancelled: Whether ``cancel`` was called.
        is_released: Whether ``release`` was called.
        losers: Attempts whose rows stay in staging without having won, as after a task retry.
        fields: Fields of the values. Those that no column reads are reported.
        passes: Claim and columns of every run.
        cuts: Number of tasks of every run.
    """

    def __init__(self, database: FakeDatabase, log: FakeLog) -> None:
        self.database = database
        self.log = log
        self.before_result: Callable[[], None] = lambda: None
        self.is_cancelled = False
        self.is_released = False
        self.losers = 0
        self.fields: tuple[NewField, ...] = ()
        self.passes: list[tuple[int, tuple[str, ...]]] = []
        self.cuts: list[int] = []
        self._attempt_id = 100

    def parallelism(self) -> int:
        return 2

    def run(self, batch: Batch, tasks: Sequence[StageTask]) -> Sequence[StageResult]:
        self.passes.append((batch.claim, tuple(column.name for column in batch.settings.value.columns)))
        self.cuts.append(len(tasks))
        for _ in range(self.losers):
            for task in tasks:
                self._stage(batch, task)
        results = [self._stage(batch, task) for task in tasks]
        self.before_result()
        return results

    def cancel(self) -> None:
        self.is_cancelled = True

    def release(self) -> None:
        self.is_released = True

    def _stage(self, batch: Batch, task: StageTask) -> StageResult:
        self._attempt_id += 1
        results = tuple(self._stage_split(batch, task, split) for split in task.splits)
        read = {column.path for column in batch.settings.value.columns}
        found = tuple(field for field in self.fields if field.path not in read)
        return StageResult(task.task_index, self._attempt_id, results, new_fields=found)

    def _stage_split(self, batch: Batch, task: StageTask, split: Split) -> SplitResult:
        partition = self.log.partition(split.topic_partition)
        refused = {(TopicPartition(r.topic, r.partition), r.offset): r.reason.value for r in task.refused}
        records = [
            StoredRecord(
                split.topic,
                split.generation,
                split.partition,
                offset,
                batch.batch_id,
                "malformed"
                if (entry.value or b"").startswith(b"bad")
                else refused.get((split.topic_partition, offset)),
            )
            for offset, entry in sorted(partition.entries.items())
            if split.start <= offset < split.end and entry.is_readable(batch.settings.isolation_level)
        ]
        with self.database.mutex:
            staged = self.database.staged[batch.batch_id, batch.claim]
            staged += [(task.task_index, self._attempt_id, record) for record in records]
        dead = sum(record.reason is not None for record in records)
        counts = RecordCounts(rows=len(records) - dead, dead_letters=dead, invisible=split.span_offsets - len(records))
        return SplitResult(split.index, counts, end_leader_epoch=partition.leader_epoch)
