"""Publishing into memory: port ``Publisher``, as strict as the one in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum, auto

from kafka_ingest.errors import (
    AccountingMismatch,
    Busy,
    CommitDidNotHappen,
    CommitStateUnknown,
    DeadLetterReason,
    Fenced,
    RecordsRefused,
    RefusedRecord,
    StagingLost,
    TargetMismatch,
)
from kafka_ingest.protocol.accounting import KeptDeadLetters, ReplacedPartition, Replacement
from kafka_ingest.protocol.batch import Batch, BatchOutcome, BatchStanding, BatchState, PartitionOutcome
from kafka_ingest.protocol.position import OffsetRange, Position
from tests.fakes.database import FakeDatabase, Identity, StoredRecord


class CommitAnswer(Enum):
    """What becomes of COMMIT and of the answer to it."""

    RECEIVED = auto()
    LOST_AFTER_COMMIT = auto()
    LOST_BEFORE_COMMIT = auto()


class FakePublisher:
    """Publications into a :class:`FakeDatabase`.

    Attributes:
        answer: What becomes of the next COMMIT.
        refused_by: Name of a constraint of the target that refuses the rows.
        refused_offsets: Offsets whose rows INSERT refuses, with the name of the CHECK that does.
        swallowed_offsets: Offsets whose rows a trigger drops, with its name.
    """

    def __init__(self, database: FakeDatabase) -> None:
        self.database = database
        self.answer = CommitAnswer.RECEIVED
        self.refused_by: str | None = None
        self.refused_offsets: dict[int, str] = {}
        self.swallowed_offsets: dict[int, str] = {}

    @contextmanager
    def begin(self, batch: Batch) -> Iterator[FakePublication]:
        publication = FakePublication(self, batch)
        try:
            yield publication
        finally:
            publication.close()


class FakePublication:
    """One transaction: its changes wait until commit. Locking the batch keeps all others from what they touch."""

    def __init__(self, publisher: FakePublisher, batch: Batch) -> None:
        self._publisher = publisher
        self._db = publisher.database
        self._batch = batch
        self._has_lock = False
        self._positions: list[Position] = []
        self._gone: list[StoredRecord] = []
        self._discarded: set[Identity] = set()
        self._rows: list[StoredRecord] = []
        self._dead_letters: list[StoredRecord] = []
        self._committed: Batch | None = None
        self._parts: tuple[PartitionOutcome, ...] = ()

    def lock_batch(self) -> BatchStanding:
        with self._db.mutex:
            stored = self._db.batches.get(self._batch.batch_id)
            if stored is None:
                raise Fenced("no such batch", batch_id=self._batch.batch_id)
            if stored.batch_id in self._db.locked:
                raise Busy("another session has the batch locked", batch_id=stored.batch_id)
            self._db.locked.add(stored.batch_id)
            self._has_lock = True
            return BatchStanding(stored.state, stored.claim)

    def advance_positions(self, outcome: BatchOutcome) -> int:
        with self._db.mutex:
            moved = [self._moved(part) for part in outcome.partitions]
        self._positions = [position for position in moved if position is not None]
        return len(self._positions)

    def replace(self, outcome: BatchOutcome, *, with_resolved: bool) -> Replacement:
        staged = self._winners(outcome)
        counted = self._counted(outcome)
        known = {_identity(record) for record in staged} | counted
        stays = set() if with_resolved else self._db.resolved
        replaced, kept = [], []
        for part in outcome.partitions:
            r = part.range
            replaced.append(self._replaced(r, known, stays))
            kept.append(self._kept(r, staged, counted, stays))
        self._discarded = stays
        return Replacement(
            tuple(part for part in replaced if part.rows or part.dead_letters),
            tuple(part for part in kept if part.rows or part.dead_letters or part.tombstones or part.invisible),
        )

    def _replaced(self, r: OffsetRange, known: set[Identity], stays: set[Identity]) -> ReplacedPartition:
        def goes(record: StoredRecord) -> bool:
            return _is_replaced(_identity(record), r) and _identity(record) not in stays

        rows = [record for record in self._db.rows if goes(record)]
        dead_letters = [record for record in self._db.dead_letters if goes(record)]
        self._gone += [*rows, *dead_letters]
        missing = sorted(record.offset for record in (*rows, *dead_letters) if _identity(record) not in known)
        return ReplacedPartition(r.topic_partition, len(rows), len(dead_letters), len(missing), tuple(missing[:5]))

    def _kept(
        self, r: OffsetRange, staged: list[StoredRecord], counted: set[Identity], stays: set[Identity]
    ) -> KeptDeadLetters:
        kept = {identity for identity in stays if _is_replaced(identity, r)}
        rows = sum(_identity(record) in kept for record in staged if record.reason is None)
        dead_letters = sum(_identity(record) in kept for record in staged if record.reason is not None)
        tombstones = len(kept & counted)
        invisible = len(kept) - rows - dead_letters - tombstones
        return KeptDeadLetters(r.topic_partition, rows, dead_letters, tombstones, invisible)

    def insert_rows(self, outcome: BatchOutcome) -> int:
        self._rows = [record for record in self._published(outcome) if record.reason is None]
        if self._publisher.refused_by and self._rows:
            raise TargetMismatch("the target refused the batch", found=f"constraint {self._publisher.refused_by}")
        refused = [record for record in self._rows if record.offset in self._publisher.refused_offsets]
        if refused:
            raise RecordsRefused.naming(
                [self._refused(record) for record in refused],
                target=str(self._batch.settings.target),
                pipeline=self._batch.pipeline,
                batch_id=self._batch.batch_id,
            )
        swallowed = [record for record in self._rows if record.offset in self._publisher.swallowed_offsets]
        if swallowed:
            name = self._publisher.swallowed_offsets[swallowed[0].offset]
            raise TargetMismatch("rows are missing in the target", found=f"trigger {name}")
        return len(self._rows)

    def _refused(self, record: StoredRecord) -> RefusedRecord:
        detail = f"CHECK {self._publisher.refused_offsets[record.offset]} of the target is false"
        return RefusedRecord(record.topic, record.partition, record.offset, DeadLetterReason.CHECK_VIOLATION, detail)

    def insert_dead_letters(self, outcome: BatchOutcome) -> int:
        self._dead_letters = [record for record in self._published(outcome) if record.reason is not None]
        stored = {_identity(record) for record in self._db.dead_letters if record not in self._gone}
        identities = [_identity(record) for record in self._dead_letters]
        if stored & set(identities) or len(set(identities)) != len(identities):
            raise AccountingMismatch("a dead letter is there already", found="constraint one_dead_letter_per_record")
        return len(self._dead_letters)

    def record_outcome(self, outcome: BatchOutcome) -> None:
        with self._db.mutex:
            stored = self._db.batches[self._batch.batch_id]
        if {part.range for part in outcome.partitions} != set(stored.ranges):
            raise AccountingMismatch("the outcome does not cover the batch's ranges")
        if any(part.counts.offsets != part.range.span_offsets for part in outcome.partitions):
            raise AccountingMismatch("the counts do not add up", found="constraint offsets_are_accounted_for")
        if stored.state is not BatchState.PLANNED or stored.claim != self._batch.claim:
            raise Fenced("another state or claim", batch_id=stored.batch_id)
        times_min = [part.record_time_min for part in outcome.partitions if part.record_time_min]
        times_max = [part.record_time_max for part in outcome.partitions if part.record_time_max]
        self._parts = outcome.partitions
        self._committed = replace(
            stored,
            state=BatchState.COMMITTED,
            counts=outcome.counts,
            record_time_min=min(times_min, default=None),
            record_time_max=max(times_max, default=None),
        )

    def commit(self) -> None:
        answer, self._publisher.answer = self._publisher.answer, CommitAnswer.RECEIVED
        if not self._has_lock:
            raise CommitDidNotHappen("nothing was locked", batch_id=self._batch.batch_id)
        if answer is not CommitAnswer.LOST_BEFORE_COMMIT:
            self._apply()
        self.close()
        if answer is not CommitAnswer.RECEIVED:
            raise CommitStateUnknown("the connection broke during COMMIT", batch_id=self._batch.batch_id)

    def close(self) -> None:
        with self._db.mutex:
            if self._has_lock:
                self._db.locked.discard(self._batch.batch_id)
                self._has_lock = False

    def _apply(self) -> None:
        db = self._db
        with db.mutex:
            for position in self._positions:
                db.positions[self._batch.pipeline, position.topic_partition] = position
            gone = set(self._gone)
            db.rows = [record for record in db.rows if record not in gone] + self._rows
            db.dead_letters = [record for record in db.dead_letters if record not in gone] + self._dead_letters
            if self._committed:
                valid_through = db.valid_through(self._batch.pipeline)
                db.batches[self._batch.batch_id] = replace(
                    self._committed, committed_at=db.now, valid_through=valid_through
                )
                db.published[self._batch.batch_id] = self._parts
                db.holds.pop(self._batch.batch_id, None)

    def _moved(self, part: PartitionOutcome) -> Position | None:
        planned = part.range
        stored = self._db.positions.get((self._batch.pipeline, planned.topic_partition))
        stands_as_planned = stored is not None and (
            (stored.committed_offset, stored.timeline, stored.generation, stored.topic_id)
            == (planned.committed_before, planned.timeline, planned.generation, planned.topic_id)
        )
        if stored is None or not stands_as_planned:
            return None
        moves = planned.end > planned.committed_before
        return replace(
            stored,
            committed_offset=planned.committed_after,
            loaded_to=max(stored.loaded_to, planned.committed_after),
            leader_epoch=part.end_leader_epoch if moves else stored.leader_epoch,
            valid_through=part.valid_through or stored.valid_through,
            updated_at=self._db.now,
        )

    def _published(self, outcome: BatchOutcome) -> list[StoredRecord]:
        return [record for record in self._winners(outcome) if _identity(record) not in self._discarded]

    def _winners(self, outcome: BatchOutcome) -> list[StoredRecord]:
        staged = self._db.staged.get((self._batch.batch_id, self._batch.claim))
        if staged is None:
            raise StagingLost("the staging table is gone", batch_id=self._batch.batch_id)
        return [record for task, attempt, record in staged if outcome.winners.get(task) == attempt]

    def _counted(self, outcome: BatchOutcome) -> set[Identity]:
        staged = self._db.counted.get((self._batch.batch_id, self._batch.claim), [])
        return {identity for task, attempt, identity in staged if outcome.winners.get(task) == attempt}


def _identity(record: StoredRecord) -> Identity:
    return (record.topic, record.generation, record.partition, record.offset)


def _is_replaced(identity: Identity, r: OffsetRange) -> bool:
    topic, generation, partition, offset = identity
    is_there = (topic, generation, partition) == (r.topic, r.generation, r.partition)
    return is_there and r.start <= offset < r.replaced_to
