"""Publishing into memory: port ``Publisher``, as strict as the one in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from enum import Enum, auto
from functools import partial

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
from kafka_ingest.protocol.accounting import AppliedChanges, Fold, KeptDeadLetters, ReplacedPartition, Replacement
from kafka_ingest.protocol.batch import Batch, BatchOutcome, BatchStanding, BatchState, PartitionOutcome, RunOptions
from kafka_ingest.protocol.position import OffsetRange, Position, TopicPartition
from tests.fakes.database import FakeDatabase, FakePort, FakeSession, Identity, StoredRecord, at_once, lies_in


class CommitAnswer(Enum):
    """What becomes of COMMIT and of the answer to it."""

    RECEIVED = auto()
    LOST_AFTER_COMMIT = auto()
    LOST_BEFORE_COMMIT = auto()


class FakePublisher(FakePort):
    """Port ``Publisher``.

    Attributes:
        answer: What becomes of the next COMMIT.
        refused_by: Name of a constraint of the target that refuses the rows.
        refused_offsets: Offsets whose rows INSERT refuses, with the name of the CHECK that does.
        swallowed_offsets: Offsets whose rows a trigger drops, with its name.
    """

    def __init__(self, database: FakeDatabase | None = None) -> None:
        super().__init__(database)
        self.answer = CommitAnswer.RECEIVED
        self.refused_by: str | None = None
        self.refused_offsets: dict[int, str] = {}
        self.swallowed_offsets: dict[int, str] = {}

    def begin(self, batch: Batch) -> closing[FakePublication]:
        return closing(FakePublication(self, batch))


class FakePublication(FakeSession):
    """The transaction of one publish."""

    def __init__(self, publisher: FakePublisher, batch: Batch) -> None:
        super().__init__(publisher.database)
        self._publisher = publisher
        self._batch = batch
        self._gone: list[StoredRecord] = []
        self._stays: set[Identity] = set()

    @at_once
    def lock_batch(self) -> BatchStanding:
        batch_id = self._batch.batch_id
        stored = self.database.batches.get(batch_id)
        if stored is None:
            raise Fenced("no such batch", batch_id=batch_id)
        self._lock([batch_id], Busy("another session has the batch locked", batch_id=batch_id))
        return BatchStanding(stored.state, stored.claim)

    @at_once
    def advance_positions(self, outcome: BatchOutcome) -> int:
        pipeline, found = self._batch.pipeline, [self._moved(part) for part in outcome.partitions]
        moved = {(pipeline, position.topic_partition): position for position in found if position}
        self._changes.append(lambda: self.database.positions.update(moved))
        return len(moved)

    @at_once
    def replace(self, outcome: BatchOutcome, *, with_resolved: bool) -> Replacement:
        staged, counted = self._winners(outcome), self._counted(outcome)
        self._stays = set() if with_resolved else self.database.resolved - self.database.replayed
        replaced = [self._replaced(part.range, {r.identity for r in staged} | counted) for part in outcome.partitions]
        kept = [self._kept(part.range, staged, counted) for part in outcome.partitions]
        self._changes.append(partial(self.database.delete, self._gone))
        return Replacement(
            tuple(part for part in replaced if part.rows or part.dead_letters),
            tuple(part for part in kept if part.rows or part.dead_letters or part.tombstones or part.invisible),
        )

    @at_once
    def insert_rows(self, outcome: BatchOutcome) -> int:
        publisher, rows = self._publisher, self._published(outcome, dead=False)
        if publisher.refused_by and rows:
            raise TargetMismatch("the target refused the batch", found=f"constraint {publisher.refused_by}")
        if refused := [refused_record(publisher, row) for row in rows if row.offset in publisher.refused_offsets]:
            target, batch = str(self._batch.settings.target), self._batch
            raise RecordsRefused.naming(refused, target=target, pipeline=batch.pipeline, batch_id=batch.batch_id)
        if swallowed := [row.offset for row in rows if row.offset in publisher.swallowed_offsets]:
            name = publisher.swallowed_offsets[swallowed[0]]
            raise TargetMismatch("rows are missing in the target", found=f"trigger {name}")
        self._changes.append(lambda: self.database.rows.extend(rows))
        return len(rows)

    def fold(self, outcome: BatchOutcome, options: RunOptions, compacted: frozenset[str] = frozenset()) -> Fold:
        raise AssertionError("records have no keys here: tests of current state use PostgreSQL (tests/state_bench.py)")

    def write_newest(self) -> Mapping[TopicPartition, AppliedChanges]:
        raise AssertionError("records have no keys here: tests of current state use PostgreSQL (tests/state_bench.py)")

    @at_once
    def insert_dead_letters(self, outcome: BatchOutcome) -> int:
        letters = self._published(outcome, dead=True)
        identities = {letter.identity for letter in letters}
        stored = {letter.identity for letter in self.database.dead_letters if letter not in self._gone}
        if stored & identities or len(identities) != len(letters):
            raise AccountingMismatch("a dead letter is there already", found="constraint one_dead_letter_per_record")
        self._changes.append(lambda: self.database.dead_letters.extend(letters))
        return len(letters)

    @at_once
    def record_outcome(self, outcome: BatchOutcome) -> None:
        stored = self.database.batches[self._batch.batch_id]
        if {part.range for part in outcome.partitions} != set(stored.ranges):
            raise AccountingMismatch("the outcome does not cover the batch's ranges")
        if any(part.counts.offsets != part.range.span_offsets for part in outcome.partitions):
            raise AccountingMismatch("the counts do not add up", found="constraint offsets_are_accounted_for")
        if stored.state is not BatchState.PLANNED or stored.claim != self._batch.claim:
            raise Fenced("another state or claim", batch_id=stored.batch_id)
        self._changes.append(partial(self._record, stored, outcome))

    def commit(self) -> None:
        answer, self._publisher.answer = self._publisher.answer, CommitAnswer.RECEIVED
        if not self._locks:
            raise CommitDidNotHappen("nothing was locked", batch_id=self._batch.batch_id)
        if answer is not CommitAnswer.LOST_BEFORE_COMMIT:
            self._apply()
        self.close()
        if answer is not CommitAnswer.RECEIVED:
            raise CommitStateUnknown("the connection broke during COMMIT", batch_id=self._batch.batch_id)

    def _record(self, stored: Batch, outcome: BatchOutcome) -> None:
        db, parts = self.database, outcome.partitions
        db.batches[stored.batch_id] = replace(
            stored,
            state=BatchState.COMMITTED,
            counts=outcome.counts,
            record_time_min=min((p.record_time_min for p in parts if p.record_time_min), default=None),
            record_time_max=max((p.record_time_max for p in parts if p.record_time_max), default=None),
            committed_at=db.now,
            valid_through=db.valid_through(stored.pipeline),
            warnings=(*stored.warnings, *outcome.warnings),
        )
        db.published[stored.batch_id] = parts
        db.holds.pop(stored.batch_id, None)

    def _moved(self, part: PartitionOutcome) -> Position | None:
        planned = part.range
        stored = self.database.positions.get((self._batch.pipeline, planned.topic_partition))
        expected = (planned.committed_before, planned.timeline, planned.generation, planned.topic_id)
        if not stored or (stored.committed_offset, stored.timeline, stored.generation, stored.topic_id) != expected:
            return None
        return replace(
            stored,
            committed_offset=planned.committed_after,
            loaded_to=max(stored.loaded_to, planned.committed_after),
            leader_epoch=part.end_leader_epoch if planned.end > planned.committed_before else stored.leader_epoch,
            valid_through=part.valid_through or stored.valid_through,
            updated_at=self.database.now,
        )

    def _replaced(self, r: OffsetRange, known: set[Identity]) -> ReplacedPartition:
        rows, dead_letters = (
            [record for record in table if self._is_replaced(record.identity, r) and record.identity not in self._stays]
            for table in (self.database.rows, self.database.dead_letters)
        )
        self._gone += [*rows, *dead_letters]
        missing = sorted(record.offset for record in (*rows, *dead_letters) if record.identity not in known)
        return ReplacedPartition(r.topic_partition, len(rows), len(dead_letters), len(missing), tuple(missing[:5]))

    def _kept(self, r: OffsetRange, staged: list[StoredRecord], counted: set[Identity]) -> KeptDeadLetters:
        kept = {identity for identity in self._stays if self._is_replaced(identity, r)}
        rows = sum(record.identity in kept for record in staged if record.reason is None)
        dead_letters = sum(record.identity in kept for record in staged if record.reason is not None)
        tombstones = len(kept & counted)
        invisible = len(kept) - rows - dead_letters - tombstones
        return KeptDeadLetters(r.topic_partition, rows, dead_letters, tombstones, invisible)

    @staticmethod
    def _is_replaced(identity: Identity, r: OffsetRange) -> bool:
        return lies_in(identity, r, r.start, r.replaced_to)

    def _published(self, outcome: BatchOutcome, *, dead: bool) -> list[StoredRecord]:
        staged = [record for record in self._winners(outcome) if record.identity not in self._stays]
        return [record for record in staged if (record.reason is not None) == dead]

    def _winners(self, outcome: BatchOutcome) -> list[StoredRecord]:
        staged = self.database.staged.get((self._batch.batch_id, self._batch.claim))
        if staged is None:
            raise StagingLost("the staging table is gone", batch_id=self._batch.batch_id)
        return [record for task, attempt, record in staged if outcome.winners.get(task) == attempt]

    def _counted(self, outcome: BatchOutcome) -> set[Identity]:
        staged = self.database.counted.get((self._batch.batch_id, self._batch.claim), [])
        return {identity for task, attempt, identity in staged if outcome.winners.get(task) == attempt}


def refused_record(publisher: FakePublisher, record: StoredRecord) -> RefusedRecord:
    """Return a record that INSERT refuses."""
    detail = f"CHECK {publisher.refused_offsets[record.offset]} of the target is false"
    return RefusedRecord(record.topic, record.partition, record.offset, DeadLetterReason.CHECK_VIOLATION, detail)
