"""Rolling back in memory: port ``RollBackLedger``, as strict as the one in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from kafka_ingest.errors import LockTimeout
from kafka_ingest.protocol.batch import BatchState, Request
from kafka_ingest.protocol.ledger_view import PlanView
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.protocol.roll_back import (
    RollBackPlan,
    RollBackRecord,
    RollBackRequest,
    RollBackView,
    Writer,
    WrittenCounts,
    WrittenRange,
)
from kafka_ingest.settings import TargetSettings
from tests.fakes.database import FakeDatabase, StoredRecord
from tests.fakes.ledger import FakeLedger

Span = tuple[str, int, int, int, int]


class FakeRollBackLedger:
    """Roll-backs in a :class:`FakeDatabase`."""

    def __init__(self, database: FakeDatabase) -> None:
        self.database = database

    def roll_back_view(self, request: RollBackRequest) -> RollBackView:
        db = self.database
        with db.mutex:
            recorded = db.roll_backs.get((request.pipeline, request.request_id))
            changed = db.changes.get((request.pipeline, request.request_id))
            return RollBackView(
                ledger=self._plan_view(request.pipeline),
                bound_timelines={
                    place: db.bound_timelines.get((request.pipeline, place), 0)
                    for pipeline, place in db.positions
                    if pipeline == request.pipeline
                },
                writers=tuple(self._writers(request)),
                used_for="rolled_back" if recorded else changed.kind if changed else None,
                recorded=recorded,
            )

    @contextmanager
    def begin_roll_back(self, plan: RollBackPlan) -> Iterator[FakeRollBack]:
        transaction = FakeRollBack(self, plan)
        try:
            yield transaction
        finally:
            transaction.close()

    def _plan_view(self, pipeline: str) -> PlanView:
        bound = self.database.pipelines.get(pipeline)
        target = TargetSettings(bound.target_schema, bound.target_table) if bound else TargetSettings("", "")
        return FakeLedger(self.database).plan_view(pipeline, Request("roll-back", ""), target)

    def _writers(self, request: RollBackRequest) -> Iterator[Writer]:
        left = request.batches
        published = [b for b in self.database.batches_of(request.pipeline) if b.committed_at is not None]
        for batch in reversed(published):
            if not left:
                return
            parts = self.database.published.get(batch.batch_id, ())
            ranges = [WrittenRange(p.range, WrittenCounts(p.counts.rows, p.counts.dead_letters)) for p in parts]
            writer = Writer(batch, tuple(sorted(ranges, key=lambda written: written.range.topic_partition)))
            left -= writer.can_be_undone
            yield writer


class FakeRollBack:
    """One transaction: its changes wait until commit. Locked batches keep all others from them."""

    def __init__(self, ledger: FakeRollBackLedger, plan: RollBackPlan) -> None:
        self._ledger = ledger
        self._db = ledger.database
        self._plan = plan
        self._locked: set[str] = set()
        self._rows: list[StoredRecord] = []
        self._dead_letters: list[StoredRecord] = []
        self._record: RollBackRecord | None = None

    def lock(self, seen: RollBackView) -> None:
        wanted = {batch.batch_id for batch in self._plan.batches} | ({self._plan.supersedes} - {None})
        with self._db.mutex:
            self._db.require(self._plan.write_from(seen), self._ledger.roll_back_view(self._plan.request))
            if wanted & self._db.locked:
                raise LockTimeout("a batch row is locked", pipeline=self._plan.request.pipeline)
            self._locked = {batch_id for batch_id in wanted if batch_id}
            self._db.locked |= self._locked

    def count(self, ranges: Sequence[WrittenRange]) -> Sequence[WrittenCounts]:
        with self._db.mutex:
            spans = [_span(written.range, written.range.start, written.range.end) for written in ranges]
            resolved = self._db.resolved
            return [
                WrittenCounts(
                    rows=len([row for row in _within(self._db.rows, span) if _identity(row) not in resolved]),
                    dead_letters=len(_within(self._db.dead_letters, span)),
                )
                for span in spans
            ]

    def delete(self) -> Mapping[TopicPartition, WrittenCounts]:
        deleted: dict[TopicPartition, WrittenCounts] = {}
        with self._db.mutex:
            for lowered in self._plan.positions:
                before, after = lowered.before, lowered.after
                span = (
                    before.topic,
                    before.generation,
                    before.partition,
                    after.committed_offset,
                    before.committed_offset,
                )
                rows, dead_letters = _within(self._db.rows, span), _within(self._db.dead_letters, span)
                deleted[before.topic_partition] = WrittenCounts(len(rows), len(dead_letters))
                self._rows += rows
                self._dead_letters += dead_letters
        return deleted

    def record(self, record: RollBackRecord) -> None:
        self._record = record

    def commit(self) -> None:
        db, record = self._db, self._record
        assert record is not None
        with db.mutex:
            db.rows = [row for row in db.rows if row not in self._rows]
            db.dead_letters = [dead for dead in db.dead_letters if dead not in self._dead_letters]
            db.resolved -= {_identity(dead) for dead in self._dead_letters}
            for lowered in self._plan.positions:
                db.positions[self._plan.request.pipeline, lowered.after.topic_partition] = lowered.after
            for batch_id in record.batch_ids:
                db.change_state(batch_id, BatchState.ROLLED_BACK)
            db.change_state(record.superseded, BatchState.SUPERSEDED)
            db.roll_backs[self._plan.request.pipeline, record.request_id] = record
        self.close()

    def close(self) -> None:
        with self._db.mutex:
            self._db.locked -= self._locked
            self._locked = set()


def _span(r: OffsetRange, start: int, end: int) -> Span:
    return (r.topic, r.generation, r.partition, start, end)


def _within(records: Sequence[StoredRecord], span: Span) -> list[StoredRecord]:
    *place, start, end = span
    return [r for r in records if [r.topic, r.generation, r.partition] == place and start <= r.offset < end]


def _identity(record: StoredRecord) -> tuple[str, int, int, int]:
    return (record.topic, record.generation, record.partition, record.offset)
